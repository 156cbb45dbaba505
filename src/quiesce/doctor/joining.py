"""Several inputs about one process become one member; labels and what the user tells are laid over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import immutables
import msgspec

from quiesce.doctor.dialects import VARIABLES, Kind, read_value
from quiesce.doctor.fleet import Field, Fleet, Member, Part, Role, Told, evidence
from quiesce.doctor.launches import read_pairs

_IDENTITY = (Field.VERSION, Field.PORT, Field.TP_SIZE, Field.CONTEXT_TOKENS, Field.BACKEND, Field.CONNECTOR)
"""Two members that differ in one of these are two processes."""

_PLANNED = frozenset({"launch", "manifest"})
"""Kinds of inputs that say what is to be started; the others say what runs."""


class Group(msgspec.Struct, frozen=True):
    """The members of one input. `label` is what the user calls it (`decode`, `decode-1`), "" for nothing."""

    members: Sequence[Member]
    label: str = ""


class Environment(msgspec.Struct, frozen=True):
    """Variables of every process, and the input that tells them."""

    source: str
    variables: Mapping[str, str]


def joined(groups: Iterable[Group], told: Mapping[str, str], environments: Sequence[Environment]) -> Fleet:
    """The fleet. `told` are fields by name; `environments` hold for what does not show its own, the first most."""
    labelled = [(group.label, _labelled(member, group.label)) for group in groups for member in group.members]
    found: list[tuple[str, Member]] = []
    for label, member in labelled:
        partner = _partner(found, label, member, [one for _label, one in labelled])
        if partner is None:
            found.append((label, member))
        else:
            found[partner] = (label, _merged(found[partner][1], member))
    members = [member for _label, member in found]
    for environment in environments:
        members = [_within(member, environment) for member in members]
    return Fleet(tuple(_told(member, told) for member in members))


def _labelled(member: Member, label: str) -> Member:
    role = label.partition("-")[0]
    if role and member.role in (Role.UNKNOWN, Role.AGGREGATED):
        return msgspec.structs.replace(member, role=Role(role))
    return member


def _partner(found: Sequence[tuple[str, Member]], label: str, member: Member, everyone: Sequence[Member]) -> int | None:
    """Which of those before is the same process, seen through an input of another kind."""
    for index, (other_label, other) in enumerate(found):
        if label and label == other_label and other.engine is member.engine and other.role is member.role:
            return index
        alone = _is_alone(member, everyone) and _is_alone(other, everyone)
        if not label and not other_label and alone and _fits(other, member):
            return index
    return None


def _fits(one: Member, other: Member) -> bool:
    same = one.engine is other.engine and one.role is other.role and not one.kinds & other.kinds
    return same and not any(_differ(one, other, field) for field in _IDENTITY)


def _differ(one: Member, other: Member, field: Field) -> bool:
    mine, theirs = one.told(field), other.told(field)
    return mine is not None and theirs is not None and mine.value != theirs.value


def _is_alone(member: Member, everyone: Sequence[Member]) -> bool:
    """Whether its kind of input tells of one such process only."""
    alike = [m for m in everyone if m.engine is member.engine and m.role is member.role and m.kinds == member.kinds]
    return len(alike) == 1


def _merged(one: Member, other: Member) -> Member:
    """What a running process says counts before what it was to be started with."""
    first, second = (other, one) if one.kinds & _PLANNED else (one, other)
    facts = immutables.Map({**second.facts, **first.facts})
    return msgspec.structs.replace(
        one,
        facts=facts,
        shown=one.shown | other.shown,
        kinds=one.kinds | other.kinds,
        unreadable=(one.unreadable | other.unreadable) - frozenset(facts),
        misread=one.misread + other.misread,
    )


def _within(member: Member, environment: Environment) -> Member:
    if not environment.variables or member.role is Role.ROUTER:
        return member
    pairs = environment.variables.items()
    facts, unreadable = read_pairs(pairs, VARIABLES[member.engine], environment.source, prefix="")
    return msgspec.structs.replace(
        member,
        facts=immutables.Map({**facts, **member.facts}),
        shown=member.shown | {Part.ENVIRONMENT},
        unreadable=(member.unreadable | unreadable) - frozenset(facts),
    )


TELLABLE: Mapping[str, tuple[Field, Kind]] = {
    "version": (Field.VERSION, Kind.TEXT),
    "patches": (Field.PATCHES, Kind.TEXT),
    "pool-tokens": (Field.POOL_TOKENS, Kind.NUMBER),
    "context-tokens": (Field.CONTEXT_TOKENS, Kind.NUMBER),
}
"""What `--tell` may say of every process that does not say it itself."""


def _told(member: Member, told: Mapping[str, str]) -> Member:
    if member.role is Role.ROUTER:
        return member
    facts = member.facts
    for name, text in told.items():
        if name in TELLABLE:
            field, kind = TELLABLE[name]
            value = read_value(kind, text)
            if value is not None and field not in facts:
                facts = facts.set(field, Told(value, evidence("--tell", 0, f"{name}={text}")))
    return msgspec.structs.replace(member, facts=facts)
