"""Five races on real processes with a real model: garbled without the rule, byte for byte the same with it."""

from __future__ import annotations

import pytest

from quiesce.lab.scenario.file import read
from quiesce.lab.scenario.real.play import play, play_kept
from quiesce.lab.scenario.real.stage import Stage
from quiesce.lab.scenario.shipped import found

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RACES = ("four-step-race", "ack-while-writing", "failed-send-acked", "clock-frees", "late-publish")
LEAKED = ("patient", "Maria", "diagnosis", "diabetes")


async def test_another_users_story_is_read_without_the_rule_and_not_with_it() -> None:
    """One test and one cluster: starting it costs more than all races together.

    Which step a late write meets is chance, and with it what is said: one answer broke off after a name. That it is no
    longer the victim's own must be seen each time, the donor's words once.
    """
    async with Stage() as stage:
        assert len(stage.solo.text) > 40
        garbled = [await tell(name, stage) for name in RACES]
    assert any(word in text for text in garbled for word in LEAKED), garbled


async def tell(name: str, stage: Stage) -> str:
    """What was answered without the rule."""
    scenario = read(found(name))
    without, kept = await play(scenario, stage), await play_kept(scenario, stage)
    assert without.leaks, name
    assert without.answer is not None, name
    assert without.answer.text != stage.solo.text, name
    assert kept is not None, name
    assert kept.answer is not None, name
    assert (kept.answer.text, kept.answer.error) == (stage.solo.text, ""), name
    assert not stage.spoilt, name
    return without.answer.text
