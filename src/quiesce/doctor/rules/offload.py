"""SGLang: decode workers that copy their KV cache to the host, switches that make faults, and capacity under aborts."""

from __future__ import annotations

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, label
from quiesce.doctor.fleet import Engine, Field, Fleet, Member
from quiesce.doctor.rules.links import SGLANG_ENVIRONMENT, sglang

_NEEDED = ("24226", "30899")


def _offload(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG):
        missing = [number for number in _NEEDED if number not in _patches(member)]
        if member.is_on(Field.DECODE_OFFLOAD) and missing:
            yield Hit(
                member.places(Field.DECODE_OFFLOAD),
                f"{label(member)} offloads decode's KV cache; that its build has #{' and #'.join(missing)} is not "
                "told.",
                "Leave out --disaggregation-decode-enable-offload-kvcache, or make sure that the build has both "
                "changes and say so: --tell patches=24226,30899.",
            )


def _patches(member: Member) -> set[str]:
    told = member.told(Field.PATCHES)
    return {part.strip().removeprefix("#") for part in str(told.value).split(",")} if told else set()


def _with_radix(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG):
        if member.is_on(Field.DECODE_OFFLOAD) and member.is_on(Field.DECODE_RADIX):
            yield Hit(
                member.places(Field.DECODE_OFFLOAD, Field.DECODE_RADIX),
                f"{label(member)} has both decode offload and decode's prefix cache.",
                "Leave out one of --disaggregation-decode-enable-offload-kvcache and "
                "--disaggregation-decode-enable-radix-cache.",
            )


def _faults(fleet: Fleet) -> Seen:
    for member in fleet.members:
        told = member.told(Field.FAULTS)
        if told and told.value:
            yield Hit(
                (told.evidence,),
                f"{label(member)} is told to make faults.",
                "Remove SGLANG_TEST_* from the environment.",
            )


RULES = (
    Rule(
        id="sglang-decode-offload",
        severity=Severity.LEAK,
        title="Decode offload without its fixes",
        why="Slots are freed while the request still reads them (#24226), or while the copy to the host still does "
        "(#30899): a new request's context is read, or stored under another's key.",
        sources=(sglang(24226), sglang(30899)),
        check=_offload,
    ),
    Rule(
        id="sglang-offload-and-radix",
        severity=Severity.HANG,
        title="Decode offload together with decode's prefix cache",
        why="Both believe that they own the same slots; the accounts go wrong and the worker dies.",
        sources=(sglang(25836), sglang(27687)),
        check=_with_radix,
    ),
    Rule(
        id="faults-on",
        severity=Severity.HANG,
        title="A switch for tests is on",
        why="Transfers fail at random, or requests are retracted, on purpose.",
        sources=(SGLANG_ENVIRONMENT,),
        check=_faults,
    ),
)
