"""Staged landing's pages: each rule holds, and without it a check fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quiesce.errors import QuiesceError
from quiesce.lab.mutants.mutant import Mutant
from quiesce.lab.swarm.landing_mutants import LANDING
from tests.worker import landing_checks

CHECKS = {check.__name__: check for check in landing_checks.ALL}


@pytest.mark.parametrize("check", landing_checks.ALL, ids=lambda check: check.__name__)
def test_check_holds(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("mutant", LANDING, ids=lambda mutant: mutant.name)
def test_mutant_is_noticed(mutant: Mutant) -> None:
    with mutant.applied(), pytest.raises((AssertionError, QuiesceError)):
        CHECKS[mutant.check]()
