"""Every mutant of every rule is noticed, by its world or by its check."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from quiesce.errors import RequestRejected
from quiesce.lab.explorer.search import explore
from quiesce.lab.mutants.mutant import Mutant
from quiesce.lab.mutants.registry import BY_NAME, MUTANTS
from tests.protocol import checks, fair_checks, pull_checks

CHECKS = {check.__name__: check for check in (*checks.ALL, *pull_checks.ALL, *fair_checks.ALL)}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}: {mutant.name}")
def test_mutant_is_noticed(mutant: Mutant) -> None:
    assert mutant.world is not None or mutant.check
    with mutant.applied():
        if mutant.world is not None:
            found = explore(mutant.world)
            assert re.match(mutant.symptom, found.violation), found
        if mutant.check:
            with pytest.raises((AssertionError, pytest.fail.Exception, RequestRejected)):
                CHECKS[mutant.check]()


@pytest.mark.parametrize("name", ["ack while writes are outstanding", "failed_in_flight does not poison"])
def test_an_early_ack_really_leaks(name: str) -> None:
    """`no_early_ack` stops these mutants before the harm; without that check the harm is seen."""
    mutant = BY_NAME[name]
    assert mutant.world is not None
    with mutant.applied():
        found = explore(replace(mutant.world, early=False))
    assert re.match("no_wild_write|no_wild_read", found.violation), found


def test_a_mutant_is_gone_after_its_block() -> None:
    honest = [getattr(module, name) for mutant in MUTANTS for module, name, _ in mutant.patches]
    for mutant in MUTANTS:
        with mutant.applied():
            assert all(getattr(module, name) is change for module, name, change in mutant.patches)
    assert [getattr(module, name) for mutant in MUTANTS for module, name, _ in mutant.patches] == honest


@pytest.mark.parametrize("name", CHECKS)
def test_check_holds(name: str) -> None:
    CHECKS[name]()


def test_every_rule_has_a_mutant() -> None:
    rules = {rule.strip() for mutant in MUTANTS for rule in mutant.rule.split(",")}
    assert {str(number) for number in range(1, 18)} <= rules
