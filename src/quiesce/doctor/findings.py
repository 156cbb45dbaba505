"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum

import msgspec

from quiesce.doctor.fleet import Evidence, Field, Fleet, Member, plain


class Severity(IntEnum):
    """How bad: what it can do to a user, the worst last."""

    ADVICE = 1
    EXPOSURE = 2
    HANG = 3
    LEAK = 4

    @property
    def word(self) -> str:
        return self.name.lower()


MEANINGS = {
    Severity.LEAK: "one user's context can reach another user's answer",
    Severity.HANG: "requests or pages can be stuck, or a worker can die",
    Severity.EXPOSURE: "others can reach or learn what they should not",
    Severity.ADVICE: "works, but with less protection or insight than there is to have",
}


class Hit(msgspec.Struct, frozen=True):
    """A rule's condition holds. `severity` and `sources` override the rule's own, where they depend on the case."""

    where: tuple[Evidence, ...]
    says: str
    fix: str
    severity: Severity | None = None
    sources: tuple[str, ...] = ()


class Unknown(msgspec.Struct, frozen=True):
    """A rule could not be judged: `what` is not told by the inputs; `remedy` says how to tell it.

    `word` is "not understood" where an input tells it in a way that is not known.
    """

    what: str
    remedy: str
    word: str = "not told"


Seen = Iterator[Hit | Unknown]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A pure function over a fleet, and what to tell of it. `sources` are where its facts come from."""

    id: str
    severity: Severity
    title: str
    why: str
    sources: tuple[str, ...]
    check: Callable[[Fleet], Iterable[Hit | Unknown]]


class Finding(msgspec.Struct, frozen=True):
    """A hit of a rule, as it is reported."""

    rule: str
    severity: str
    title: str
    where: tuple[Evidence, ...]
    says: str
    why: str
    fix: str
    sources: tuple[str, ...]

    @property
    def level(self) -> Severity:
        return Severity[self.severity.upper()]


class Untold(msgspec.Struct, frozen=True):
    """What the inputs do not tell, and the rules that could not be judged for that."""

    what: str
    remedy: str
    rules: tuple[str, ...]
    word: str = "not told"


class Diagnosis(msgspec.Struct, frozen=True):
    """All of one examination, the worst first."""

    fleet: Fleet
    findings: tuple[Finding, ...]
    untold: tuple[Untold, ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> Severity | None:
        return max((finding.level for finding in self.findings), default=None)


def label(member: Member) -> str:
    """`SGLang decode (decode.sh:3)`, as sentences name a process."""
    names = {"sglang": "SGLang", "vllm": "vLLM", "quiesce": "Quiesce"}
    role = "" if member.role == "unknown" else f" {member.role}"
    return f"{names[member.engine]}{role} ({plain(member.name, 200)})"


def untold(member: Member, field: Field, remedy: str) -> Unknown:
    """The question that `member` leaves open."""
    return Unknown(f"{field.words} of {label(member)}", remedy)
