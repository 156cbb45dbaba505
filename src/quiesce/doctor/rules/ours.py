"""Quiesce's own settings and what its metrics say."""

from __future__ import annotations

from itertools import chain

from quiesce.doctor.addresses import is_local, listening_host
from quiesce.doctor.findings import Hit, Rule, Seen, Severity, Unknown, label
from quiesce.doctor.fleet import Engine, Field, Fleet, Member, Part, Role, Told
from quiesce.doctor.rules.links import OUR_SECURITY, OUR_SETTINGS, OUR_TRANSPORTS, OUR_WATCH


def _unsafe(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE):
        freed = member.number(Field.TIMEOUT_RELEASES)
        if member.is_on(Field.UNSAFE_RELEASE) or freed:
            yield Hit(
                member.places(Field.UNSAFE_RELEASE, Field.TIMEOUT_RELEASES),
                f"{label(member)} frees held pages by a timer" + (f", {freed:g} times so far." if freed else "."),
                "Start it without --unsafe-release-on-timeout.",
            )


def _flags_not_shown(fleet: Fleet) -> Seen:
    """A running server tells what happened, not what it was told; its log does."""
    decodes = fleet.of(Engine.QUIESCE, Role.DECODE)
    if silent := [each for each in decodes if Part.FLAGS not in each.shown and "log" not in each.kinds]:
        yield Unknown(
            f"whether {' and '.join(map(label, silent))} trusts a transport without authentication or "
            "one that nobody verified, and frees held pages by a timer",
            "Give the command line (--args), or the start-up log.",
        )


def _mismatches(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE):
        count = member.number(Field.TAG_MISMATCHES)
        if count:
            yield Hit(
                member.places(Field.TAG_MISMATCHES),
                f"{label(member)}: {count:g} requests were ended because a page bore a foreign tag.",
                "Make a bundle (quiesce inspect --bundle FILE) and report it: docs/incident-response.md.",
            )


def _quarantine(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE):
        pages = member.number(Field.QUARANTINED_PAGES)
        if pages:
            yield Hit(
                member.places(Field.QUARANTINED_PAGES),
                f"{label(member)}: {pages:g} pages are in quarantine.",
                "quiesce inspect says whose acknowledgement is awaited. Ending that process is a fence and frees them.",
            )


def _budget(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.DECODE):
        budget, policy = member.number(Field.QUARANTINE_BUDGET), member.told(Field.FENCE_POLICY)
        if budget is not None and budget >= 1.0 and (policy is None or policy.value == "quarantine"):
            yield Hit(
                member.places(Field.QUARANTINE_BUDGET),
                f"{label(member)} may put its whole pool into quarantine without beginning a new life.",
                "Leave --quarantine-budget at 0.25, or set --fence-policy fence.",
            )


def _deadlines(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.PREFILL, Role.DECODE):
        call = member.number(Field.CALL_DEADLINE_S) or 30.0
        hold = member.number(Field.HOLD_DEADLINE_S) or 30.0
        handoff = member.number(Field.HANDOFF_S) or 300.0
        if hold < call and (Field.HOLD_DEADLINE_S in member.facts or Field.CALL_DEADLINE_S in member.facts):
            yield Hit(
                member.places(Field.HOLD_DEADLINE_S, Field.CALL_DEADLINE_S),
                f"{label(member)}: holds are quarantined or fenced after {hold:g} s, while a write may take "
                f"{call:g} s.",
                "Set --hold-deadline-s to at least --call-deadline-s. Nothing leaks either way; pages are lost for "
                "longer.",
            )
        if handoff < call and (Field.HANDOFF_S in member.facts or Field.CALL_DEADLINE_S in member.facts):
            yield Hit(
                member.places(Field.HANDOFF_S, Field.CALL_DEADLINE_S),
                f"{label(member)}: a hand-off ends after {handoff:g} s of silence, while one write may take "
                f"{call:g} s.",
                "Set --handoff-timeout-s above --call-deadline-s.",
            )


def _small_pool(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.PREFILL, Role.DECODE, Role.AGGREGATED):
        if member.is_on(Field.SMALL_POOL):
            yield Hit(
                member.places(Field.SMALL_POOL),
                f"{label(member)} starts although its context may not fit its pool; longer prompts are a 400 there.",
                "Set --context-length to what the pool holds, so that clients see the limit that there is.",
            )


def _trusts_network(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE):
        if member.is_on(Field.TRUST_NETWORK):
            yield Hit(
                member.places(Field.TRUST_NETWORK),
                f"{label(member)} lets a transport write to its pool that does not prove who it is.",
                "Keep workers on a network that nobody else reaches, or use a transport that authenticates.",
            )


def _data_in_the_clear(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.DECODE):
        transport, (host, said) = member.told(Field.BACKEND), _page_host(member)
        way = member.told(Field.DATA_TLS)
        encrypted = member.told(Field.TLS_CERT) and not (way and way.value == "off")
        if transport and said and transport.value == "tcp" and not is_local(host) and not encrypted:
            yield Hit(
                (transport.evidence, said.evidence, *([way.evidence] if way else [])),
                f"{label(member)} takes page data at {host}, neither encrypted nor signed on its way.",
                "Give --tls-cert, --tls-key and --tls-ca and leave --data-tls alone, or give --data-host an address of "
                "a network that workers alone are on; on one host leave it out.",
            )


def _page_host(member: Member) -> tuple[str, Told | None]:
    """Where page data is taken, and what says so: --data-host, by default --listen. None: perhaps nowhere else."""
    if told := member.told(Field.DATA_HOST):
        return str(told.value), told
    listen = member.told(Field.LISTEN)
    host = listening_host(str(listen.value)) if listen else ""
    return host, listen if host else None


def _other_transport(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.DECODE):
        transport = member.told(Field.BACKEND)
        if transport and transport.value not in _OURS:
            yield Hit(
                (transport.evidence,),
                f"{label(member)} uses the transport {transport.value}, which a package offers.",
                "Run its conformance suite with the versions that are installed: docs/backends.md.",
            )


def _trusts_library(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE):
        if member.is_on(Field.TRUST_TRANSPORT):
            yield Hit(
                member.places(Field.TRUST_TRANSPORT),
                f"{label(member)} takes a transport's library in a version that nobody has verified.",
                "Install a version that is verified, or run the conformance suite with this one: docs/backends.md.",
            )


_OURS = ("auto", "shm", "tcp", "mooncake", "nixl")

RULES = (
    Rule(
        id="quiesce-unsafe-release",
        severity=Severity.LEAK,
        title="Held pages are freed by a timer",
        why="This flag gives up what Quiesce is for: pages go to the next request while a write to them may be "
        "under way.",
        sources=(OUR_SETTINGS, OUR_SECURITY),
        check=lambda fleet: chain(_unsafe(fleet), _flags_not_shown(fleet)),
    ),
    Rule(
        id="quiesce-tag-mismatch",
        severity=Severity.LEAK,
        title="A page bore a foreign tag",
        why="The check caught it before or while the answer was made. With proofs in force it means a bug, or a writer "
        "that breaks the contract of its transport.",
        sources=(OUR_WATCH,),
        check=_mismatches,
    ),
    Rule(
        id="quiesce-quarantine",
        severity=Severity.HANG,
        title="Pages are in quarantine",
        why="They stay out of use until a proof arrives. A process that is frozen or gone astray withholds it.",
        sources=(OUR_WATCH,),
        check=_quarantine,
    ),
    Rule(
        id="quiesce-quarantine-budget",
        severity=Severity.HANG,
        title="Quarantine without end",
        why="A worker whose pool is in quarantine admits nothing and never restarts.",
        sources=(OUR_SETTINGS,),
        check=_budget,
    ),
    Rule(
        id="quiesce-deadlines",
        severity=Severity.ADVICE,
        title="Deadlines in the wrong order",
        why="A deadline that passes before what it waits for can have ended makes quarantine of ordinary slowness.",
        sources=(OUR_SETTINGS,),
        check=_deadlines,
    ),
    Rule(
        id="quiesce-small-pool",
        severity=Severity.ADVICE,
        title="A pool smaller than the context, on purpose",
        why="Doors check both limits, so nothing leaks; but clients are told of a context that there is not.",
        sources=(OUR_SETTINGS,),
        check=_small_pool,
    ),
    Rule(
        id="quiesce-data-in-the-clear",
        severity=Severity.EXPOSURE,
        title="Page data travels in the clear",
        why="A KV cache is the prompt in another form. Whoever is on the way can read it, or change it.",
        sources=(OUR_TRANSPORTS,),
        check=_data_in_the_clear,
    ),
    Rule(
        id="quiesce-other-transport",
        severity=Severity.ADVICE,
        title="A transport of somebody else's",
        why="Releases rest on what a transport says of its writes; what it declares counts only as far as it was seen.",
        sources=(OUR_TRANSPORTS,),
        check=_other_transport,
    ),
    Rule(
        id="quiesce-trusts-library",
        severity=Severity.ADVICE,
        title="A transport's library in a version that was never verified",
        why="Releases rest on what a library does after it said that a write failed, and that differs among versions.",
        sources=(OUR_TRANSPORTS,),
        check=_trusts_library,
    ),
    Rule(
        id="quiesce-trusts-network",
        severity=Severity.EXPOSURE,
        title="A transport without authentication",
        why="Whoever reaches it can write to the pool.",
        sources=(OUR_TRANSPORTS, OUR_SECURITY),
        check=_trusts_network,
    ),
)
