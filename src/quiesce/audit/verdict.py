"""What a verdict is made of."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from quiesce.audit.intervals import Rate

ALPHA = 0.001
"""Of each statistical test. There are at most four, so a clean target is accused by one of them in 0.4 % of audits."""

DOUBT = 0.05
"""Under it a difference between arms is worth a second look, and a warning."""


class Status(StrEnum):
    """`suspected` makes the exit code 1; a warning does not."""

    PASSED = "passed"
    WARNING = "warning"
    SUSPECTED = "suspected"
    NOT_TESTED = "not tested"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question, what was found, and how sure that is. `p` is of a one-sided exact test."""

    name: str
    title: str
    status: Status
    said: str
    rate: Rate | None = None
    p: float | None = None
    details: tuple[str, ...] = ()


MOST_DETAILS = 20


def made(
    name: str,
    title: str,
    status: Status,
    said: str,
    details: Sequence[str] = (),
    *,
    found: Rate | None = None,
    p: float | None = None,
) -> Check:
    """A check with as many details as anybody reads."""
    shown = tuple(details[:MOST_DETAILS])
    if len(details) > MOST_DETAILS:
        shown += (f"and {len(details) - MOST_DETAILS} more",)
    return Check(name=name, title=title, status=status, said=said, rate=found, p=p, details=shown)


class ArmRow(msgspec.Struct, frozen=True, kw_only=True):
    """Victims of one arm: how many were asked, were answered, differ from their solo, show a foreign marker."""

    arm: str
    asked: int
    answered: int
    diverged: Rate
    marked: Rate
    unfinished: Rate


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`answered` of `wanted` victims and solos came. `false_positives` bounds an accusation by a marker's run,
    `false_whole` one by a whole marker, over everything that was searched. Not `is_whole`: it was stopped early.
    """

    checks: tuple[Check, ...]
    arms: tuple[ArmRow, ...]
    wanted: int
    answered: int
    letters: int
    markers: int
    run: int
    false_positives: float
    false_whole: float
    untested: tuple[str, ...]
    is_whole: bool = True

    @property
    def is_suspected(self) -> bool:
        return any(check.status is Status.SUSPECTED for check in self.checks)

    @property
    def is_usable(self) -> bool:
        """Whether enough was answered for silence to mean something."""
        return 2 * self.answered >= self.wanted

    @property
    def exit_code(self) -> int:
        if self.is_suspected:
            return 1
        return 0 if self.is_usable and self.is_whole else 4
