"""Each checker is able to fail: it is shown what it must not let pass, and what it must."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quiesce.lab.swarm.checkers import Checkers, Violation
from quiesce.protocol.admission import Limits

LIMITS = Limits(context_length=100, pool_tokens=80)


def released_twice(checks: Checkers) -> None:
    checks.once.released("d0", 1, 0)
    checks.once.released("d0", 1, 0)


def ended_twice(checks: Checkers) -> None:
    checks.ends_once.ended(7, "answered")
    checks.ends_once.ended(7, "client_gone")


def passed_for_ever(checks: Checkers) -> None:
    checks.fairness.waits(1, 0.0, 10.0)
    for _ in range(9):
        checks.fairness.placed(0, 10.0)


def beyond_its_minute(checks: Checkers) -> None:
    for at in range(8):
        checks.quota.taken(0, float(at), 3)


WRONG: dict[str, Callable[[Checkers], None]] = {
    "no_wild_write": lambda c: c.no_wild_write.landed(3, 4, 0, "page 5", 1),
    "no_wild_write ": lambda c: c.no_wild_write.landed(3, 3, 1, "page 5", 1),
    "no_wild_write  ": lambda c: c.no_wild_write.released(3, 2, "decode 0", 1),
    "no_alias": lambda c: c.no_alias.leased(3, [1], [0, 2], [0, 0], "decode 0"),
    "no_alias ": lambda c: c.no_alias.leased(3, [1], [0, 0], [0, 1], "decode 0"),
    "read_own": lambda c: c.read_own.read((1, 2), (1, 3), "decode 0", 1),
    "no_early_ack": lambda c: c.no_early_ack.said("DONE", 1, "prefill 0", 1),
    "armed_first": lambda c: c.armed_first.aborted("ABORT", 3, False, "decode 0", 1),
    "armed_first ": lambda c: c.armed_first.launched(3, True, "decode 0", 1),
    "armed_first  ": lambda c: c.armed_first.offered(False, "prefill 0", 1),
    "no_wild_read": lambda c: c.no_wild_read.read(8, 9, "page 1", 1),
    "no_wild_read ": lambda c: c.no_wild_read.released(1, "prefill 0", 1),
    "no_leak": lambda c: c.no_leak.quiet(["no_leak: attempt 1 is holding"]),
    "once": released_twice,
    "no_stub": lambda c: c.no_stub.rejected(True, "the router", 1),
    "no_poison": lambda c: c.no_poison.shared([(1, 2)], [(1, 3)], "decode 0", 1),
    "no_poison ": lambda c: c.no_poison.cached(False, "decode 0", 1),
    "ends_once": ended_twice,
    "ends_once ": lambda c: c.ends_once.all_ended([4]),
    "admission": lambda c: c.admission.let_in(70, 20, LIMITS, "decode 0", 1),
    "admission ": lambda c: c.admission.within(9, 8, "running requests", "decode 0"),
    "fairness": passed_for_ever,
    "quota": beyond_its_minute,
    "twins": lambda c: c.twins.equal(1, 2, "free pages"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen(name: str) -> None:
    with pytest.raises(Violation) as seen:
        WRONG[name](Checkers())
    assert seen.value.name == name.strip()


def test_every_checker_is_shown_something_wrong() -> None:
    assert {name.strip() for name in WRONG} == set(Checkers().looked())


def test_what_is_right_passes_and_is_counted() -> None:
    checks = Checkers()
    checks.no_wild_write.landed(3, 3, 0, "page 5", 1)
    checks.no_alias.leased(3, [0], [0], [0], "decode 0")
    checks.read_own.read((1, 2), (1, 2), "decode 0", 1)
    checks.once.released("d0", 1, 0)
    checks.once.released("d0", 1, 1)
    checks.admission.let_in(60, 20, LIMITS, "decode 0", 1)
    checks.fairness.waits(1, 0.0, 10.0)
    checks.fairness.placed(0, 10.0)
    checks.fairness.settled(0, -5.0)
    assert sum(checks.looked().values()) == 7


def test_a_muted_checker_only_looks() -> None:
    checks = Checkers(frozenset({"armed_first"}))
    checks.armed_first.aborted("ABORT", 3, False, "decode 0", 1)
    assert checks.looked()["armed_first"] == 1
