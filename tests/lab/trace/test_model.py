"""The checker's actions and rules are those of the proof."""

from __future__ import annotations

from dataclasses import fields

from proof.pull.actions import PullRules
from proof.pull.model import PULL
from proof.push.model import PUSH
from proof.push.rules import PushRules

from quiesce.lab.trace import actions
from quiesce.lab.trace.breach import RULES

OF_FILES = {"in_order", "said_before_heard"}


def test_rules_have_the_names_of_the_proof() -> None:
    of_pull = {each.name for each in fields(PullRules)} | set(PULL.invariants)
    named = of_pull | {each.name for each in fields(PushRules)} | set(PUSH.invariants) | OF_FILES
    assert set(RULES) - named == set()


def test_every_action_is_seen_or_said_to_be_in_no_line() -> None:
    seen = {*actions.SAID.values(), *actions.HEARD.values(), *actions.FACTS.values()}
    seen |= {action for each in actions.EFFECTS.values() for action in each} | {"release", "finish"}
    seen |= {"landed", "failed_quiesced", "failed_in_flight"}
    unseen = {action for each in actions.IN_NO_LINE.values() for action in each}
    assert seen & unseen == set()
    assert seen | unseen == set(PUSH.possible)


def test_every_action_of_pull_is_seen_or_said_to_be_in_no_line() -> None:
    seen = {*actions.IN_PULL.values(), "release", "finish", "send_ack"}
    seen |= {"landed", "failed_quiesced", "failed_in_flight"}
    unseen = {action for each in actions.IN_NO_LINE_OF_PULL.values() for action in each}
    assert seen & unseen == set()
    assert seen | unseen == set(PULL.possible)
