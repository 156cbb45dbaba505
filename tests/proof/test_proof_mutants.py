"""Each protection left out breaks the obligation that the table names, and does harm in a run from the start."""

from __future__ import annotations

import pytest
from proof.model import Mutant
from proof.models import MODELS
from proof.mutants import judge

ALL = [(name, mutant) for name, model in MODELS.items() for mutant in model.mutants]
HARM = {"no_wild_write", "no_wild_read", "read_own", "read_own_shared"}


@pytest.mark.parametrize(("name", "mutant"), ALL, ids=lambda each: getattr(each, "name", each))
def test_mutant_is_killed(name: str, mutant: Mutant) -> None:
    verdict = judge(MODELS[name], mutant)
    assert verdict.broken, f"{mutant.breaks} has no counterexample"
    assert verdict.harm is not None, f"{mutant.harm.steps} does not end in a violation of {mutant.harm.violates}"
    assert verdict.spared, "the same run does harm with the rule in place"


@pytest.mark.parametrize(("name", "mutant"), ALL, ids=lambda each: getattr(each, "name", each))
def test_an_early_ack_alone_is_no_harm(name: str, mutant: Mutant) -> None:
    """The runs end where somebody's memory is hit, or read. Rule 15's harm is the allocator's, outside of the model."""
    assert mutant.harm.violates in (HARM if mutant.rule != "15" else {"once"})


def test_every_rule_that_is_about_safety_has_a_mutant() -> None:
    """Rules 1 and 17, and the door of 10, are about what happens at last and about requests: explorer and tests."""
    rules = {rule for _, mutant in ALL for rule in mutant.rule.split(" and ")}
    assert {str(number) for number in range(2, 17)} <= rules
