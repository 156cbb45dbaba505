"""Run every check against a backend and say what it may claim."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from quiesce.errors import QuiesceError
from quiesce.transport.conformance.candidates import candidate
from quiesce.transport.conformance.checks import ALWAYS, PROVES, Check
from quiesce.transport.registry import Backend


class Seen(msgspec.Struct, frozen=True):
    """One check: whether its promise held, and what was observed."""

    name: str
    holds: bool
    detail: str
    seconds: float


def claimed(backend: Backend) -> frozenset[str]:
    """What it declares of itself: capabilities, and of the rest what a check can see."""
    capabilities = backend.capabilities
    names = {name for name in capabilities.__struct_fields__ if getattr(capabilities, name)}
    besides = {"close_fence": backend.close_fence, "lease_bound": backend.lease_bound}
    return frozenset(names | {name for name, holds in besides.items() if holds})


class Report(msgspec.Struct, frozen=True):
    """All checks of one backend. `derived` are the capabilities that were seen, `declared` what it claims of itself."""

    backend: str
    seen: tuple[Seen, ...]
    derived: frozenset[str]
    declared: frozenset[str]

    @property
    def unproved(self) -> frozenset[str]:
        """Declared, testable, and not seen."""
        return (self.declared & frozenset(PROVES)) - self.derived

    @property
    def passed(self) -> bool:
        """Every condition of entry holds, and nothing is claimed that was not seen."""
        entry = {check.__name__ for check in ALWAYS}
        return not self.unproved and all(each.holds for each in self.seen if each.name in entry)


def promised(backend: str) -> tuple[Check, ...]:
    """The checks that must hold: the conditions of entry, and what the declared capabilities rest on.

    Raises ConfigurationError for a name that the registry does not know.
    """
    declared = claimed(candidate(backend))
    proving = (check for name, checks in PROVES.items() if name in declared for check in checks)
    return tuple(dict.fromkeys((*ALWAYS, *proving)))


def title(check: str) -> str:
    """A check's name as people read it."""
    return check.replace("_s_", "'s ").replace("_", " ")


CHECKS: tuple[Check, ...] = tuple(dict.fromkeys((*ALWAYS, *(each for checks in PROVES.values() for each in checks))))


def conformance(backend: str, told: Callable[[Seen], None] = lambda _: None) -> Report:
    """Run everything against a backend by name; `told` hears of each check as it ends.

    Raises ConfigurationError for a name that the registry does not know.
    """
    declared = claimed(candidate(backend))
    seen = []
    for check in CHECKS:
        seen.append(_run(check, backend))
        told(seen[-1])
    held = {each.name for each in seen if each.holds}
    derived = frozenset(name for name, checks in PROVES.items() if {each.__name__ for each in checks} <= held)
    return Report(backend, tuple(seen), derived, declared)


def _run(check: Check, backend: str) -> Seen:
    began_s = time.monotonic()
    try:
        holds, detail = True, check(backend)
    except QuiesceError as error:
        holds, detail = False, str(error)
    return Seen(check.__name__, holds, detail, time.monotonic() - began_s)
