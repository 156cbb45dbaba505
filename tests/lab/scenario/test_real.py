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
    """One test and one cluster: starting it costs more than all races together."""
    async with Stage() as stage:
        assert len(stage.solo.text) > 40
        for name in RACES:
            await tell(name, stage)


async def tell(name: str, stage: Stage) -> None:
    scenario = read(found(name))
    without, kept = await play(scenario, stage), await play_kept(scenario, stage)
    assert without.leaks, name
    assert without.answer is not None, name
    assert any(word in without.answer.text for word in LEAKED), (name, without.answer)
    assert kept is not None, name
    assert kept.answer is not None, name
    assert (kept.answer.text, kept.answer.error) == (stage.solo.text, ""), name
    assert not stage.spoilt, name
