"""Routers in front of pairs: whether both halves learn that a request is over, and when."""

from __future__ import annotations

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, Unknown, label
from quiesce.doctor.fleet import Engine, Field, Fleet, Member, Part, Role
from quiesce.doctor.rules.links import VLLM_NIXL, sglang, sglang_issue
from quiesce.doctor.rules.releases import waits

_ALONE = {
    "mini_lb": "is a load balancer for tests: when one half fails, or the client leaves, it leaves the other half "
    "at work.",
    "toy proxy": "is a toy proxy from vLLM's examples: when one half fails, or the client leaves, nobody tells the "
    "other half.",
    "dynamo": "did not tell the prefill worker, as of September 2026, that a client left before the first token.",
}

_SGLANG_FIX = "Use a router that cancels both halves: sglang-router of a build with #29017 and #37961."
_VLLM_FIX = (
    "Use a router that aborts both halves, and see that it does: leave a request before its first token, and look "
    "at the running requests of prefill and of decode."
)

WAITING_S = 300.0
"""Default of SGLANG_DISAGGREGATION_WAITING_TIMEOUT."""


def _unpaired(fleet: Fleet) -> Seen:
    for router in fleet.routers():
        kind = router.told(Field.ROUTER_KIND)
        if kind is None:
            continue
        if kind.value in _ALONE:
            yield Hit(
                (kind.evidence,),
                f"The router ({router.name}) {_ALONE[str(kind.value)]}",
                _VLLM_FIX if _drives_vllm(fleet, router) else _SGLANG_FIX,
                sources=(VLLM_NIXL,) if kind.value == "toy proxy" else (),
            )
        elif kind.value == "sglang-router":
            yield Unknown(
                f"whether the build of the router ({router.name}) cancels the other half (#29017, #37961)",
                "Compare its version with those changes; from its flags alone it cannot be seen.",
            )


def _drives_vllm(fleet: Fleet, router: Member) -> bool:
    workers = {member.engine for member in fleet.members if member.role is not Role.ROUTER}
    return Engine.VLLM in (workers or {router.engine})


def _not_shown(fleet: Fleet) -> Seen:
    for member in fleet.members:
        if member.role is Role.UNKNOWN and Part.FLAGS not in member.shown and Field.CONNECTOR not in member.facts:
            yield Unknown(
                f"how {label(member)} was started, and whether it is half of a pair",
                "Give its command or its start-up log as one more input, and say its role: prefill=, decode=.",
            )
    yield from _no_router(fleet)
    yield from _other_half(fleet)


def _other_half(fleet: Fleet) -> Seen:
    """Of a pair of which one half is among the inputs, or named by a router, and the other one is not."""
    for role, other, field in _HALVES:
        names = next((router for router in fleet.routers() if field in router.facts), None)
        shown = next((member for member in fleet.members if member.role is other), None)
        engines = {member.engine for member in fleet.members if member.role in (role, Role.UNKNOWN)}
        remedy = f"Give its command, its log or its address as one more input ({role}=...): a pair is judged together."
        if shown and shown.engine not in engines:
            yield Unknown(f"the {role} half of {label(shown)}", remedy)
        elif names and not engines:
            yield Unknown(f"the {role} half, {names.facts[field].value}, which the router ({names.name}) names", remedy)


_HALVES = (
    (Role.PREFILL, Role.DECODE, Field.NAMED_PREFILL),
    (Role.DECODE, Role.PREFILL, Field.NAMED_DECODE),
)


def _no_router(fleet: Fleet) -> Seen:
    if not list(fleet.routers()):
        for prefill, decode in list(fleet.pairs())[:1]:
            if prefill.engine is not Engine.QUIESCE:
                yield Unknown(
                    f"which router is in front of {label(prefill)} and {label(decode)}",
                    "Give its command or its file as one more input.",
                )


def _early(fleet: Fleet) -> Seen:
    for router in fleet.routers():
        limit = router.number(Field.ROUTER_TIMEOUT_S)
        for decode in fleet.members:
            waiting = decode.number(Field.WAITING_S) or WAITING_S
            if limit is not None and decode.role == "decode" and limit < waiting and _races(decode):
                yield Hit(
                    (*router.places(Field.ROUTER_TIMEOUT_S), *decode.places(Field.WAITING_S)),
                    f"The router gives a request up after {limit:g} s, while {label(decode)} may wait {waiting:g} s "
                    "for its "
                    "context: long prompts are aborted in the middle of their transfer.",
                    "Protect releases first (the findings above); then let the router wait longer than the workers do.",
                )


def _races(decode: Member) -> bool:
    """Whether its releases are not known to be protected."""
    return decode.engine is Engine.SGLANG and not waits(decode)


RULES = (
    Rule(
        id="router-leaves-a-half",
        severity=Severity.HANG,
        title="A router that tells one half only",
        why="The half that nobody tells computes, waits and holds pages until a time limit of minutes; while it does, "
        "it may still write to the pages that the other half gave away.",
        sources=(
            sglang(29017),
            sglang(37961),
            sglang_issue(9726),
            sglang_issue(13631),
            "https://github.com/ai-dynamo/dynamo/issues/13691",
            VLLM_NIXL,
        ),
        check=_unpaired,
    ),
    Rule(
        id="deployment-not-shown",
        severity=Severity.ADVICE,
        title="Part of the deployment was not among the inputs",
        why="Whether aborts reach both halves is decided at the router; whether there are halves at all, by how "
        "processes are started. This rule only asks.",
        sources=(sglang(29017),),
        check=_not_shown,
    ),
    Rule(
        id="router-aborts-early",
        severity=Severity.ADVICE,
        title="The router aborts before the first token",
        why="An abort before the first token is an abort in the middle of a transfer. It is the trigger of the leak "
        "where releases are unprotected; time limits make it regular, and worst for long prompts.",
        sources=(sglang(27372), sglang(32564)),
        check=_early,
    ),
)
