"""vLLM: connectors, and what frees the blocks of both halves."""

from __future__ import annotations

from collections.abc import Iterator

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, label, untold
from quiesce.doctor.fleet import Engine, Field, Fleet, Member, Role
from quiesce.doctor.rules.links import VLLM, VLLM_NIXL, vllm
from quiesce.doctor.rules.release import before

_LEASE_S = 30.0
"""Default of kv_lease_duration, and how long a read may be under way at least."""


def _with(fleet: Fleet, *connectors: str) -> Iterator[tuple[Member, str]]:
    for member in fleet.of(Engine.VLLM):
        told = member.told(Field.CONNECTOR)
        if told and told.value in connectors:
            yield member, str(told.value)


def _source_freed(fleet: Fleet) -> Seen:
    for member, _connector in _with(fleet, "NixlConnector"):
        if member.role is Role.DECODE:
            continue
        for field, name in ((Field.ABORT_S, "VLLM_NIXL_ABORT_REQUEST_TIMEOUT"), (Field.LEASE_S, "kv_lease_duration")):
            limit = member.number(field)
            if limit is not None and limit < _LEASE_S:
                yield Hit(
                    member.places(field),
                    f"{label(member)} frees a prompt's blocks after {limit:g} s, read or not; a read may take longer.",
                    f"Set {name} to more than the longest transfer: {_LEASE_S:g} s at least, with long prompts 120 s.",
                )


def _held_for_ever(fleet: Fleet) -> Seen:
    for member, connector in _with(fleet, "MooncakeConnector", "NixlPushConnector"):
        if member.role is not Role.PREFILL:
            yield Hit(
                member.places(Field.CONNECTOR),
                f"{label(member)} uses {connector}, whose decode side waits without limit for a prefill that fails.",
                "Use NixlConnector, or make sure that your build reports failed loads (#50984) and reclaims "
                "aborted ones.",
            )


def _moriio(fleet: Fleet) -> Seen:
    for member, connector in _with(fleet, "MoRIIOConnector"):
        yield Hit(
            member.places(Field.CONNECTOR),
            f"{label(member)} uses {connector}, which frees blocks that were not acknowledged once a timer is over.",
            "Use a build with #56465, or another connector.",
        )


def _p2p_nccl(fleet: Fleet) -> Seen:
    for member, connector in _with(fleet, "P2pNcclConnector"):
        if not member.is_on(Field.STABLE_IDS):
            yield Hit(
                member.places(Field.CONNECTOR),
                f"{label(member)} uses {connector}, whose halves find each other by request ids that each makes "
                "random.",
                "Use NixlConnector, or set VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1 on both halves.",
            )


def _connectors(fleet: Fleet) -> Seen:
    for prefill, decode in fleet.pairs(Engine.VLLM):
        ours, theirs = prefill.told(Field.CONNECTOR), decode.told(Field.CONNECTOR)
        if ours and theirs and ours.value != theirs.value:
            yield Hit(
                (ours.evidence, theirs.evidence),
                f"{label(prefill)} uses {ours.value}, {label(decode)} uses {theirs.value}.",
                "Give both halves the same kv_connector.",
            )


def _roles(fleet: Fleet) -> Seen:
    halves = [member for member in fleet.of(Engine.VLLM) if member.role in (Role.PREFILL, Role.DECODE)]
    roles = {member.role for member in halves}
    if len(halves) > 1 and len(roles) == 1:
        yield Hit(
            tuple(place for member in halves for place in member.places(Field.KV_ROLE)),
            f"All {len(halves)} members are {roles.pop()} (kv_role).",
            "Give prefill kv_producer and decode kv_consumer, or both kv_both.",
        )


def _no_role(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.VLLM):
        told = member.told(Field.CONNECTOR)
        if told and Field.KV_ROLE not in member.facts and Field.KV_ROLE not in member.unreadable:
            yield Hit(
                (told.evidence,),
                f"{label(member)} has the connector {told.value} and no kv_role.",
                "Add kv_role: kv_producer for prefill, kv_consumer for decode, or kv_both.",
            )


def _abort_frees(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.VLLM):
        if Field.CONNECTOR not in member.facts and Field.CONNECTOR not in member.unreadable:
            continue
        old = before(member, (0, 16, 0))
        if old is None:
            yield untold(
                member, Field.VERSION, "Tell it with --tell version=0.20.0, or give the image's tag or the log."
            )
        elif old:
            yield Hit(
                member.places(Field.VERSION),
                f"{label(member)} frees the blocks of a request that is aborted while they are being loaded.",
                "Update prefill and decode together to vLLM 0.16.0 or newer.",
            )


def _recompute(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.VLLM):
        told = member.told(Field.LOAD_FAILURE)
        if told and told.value == "recompute":
            yield Hit(
                (told.evidence,),
                f"{label(member)} computes a prompt again when its context does not arrive.",
                "Set kv_load_failure_policy to fail, and let the client or the router retry.",
            )


RULES = (
    Rule(
        id="vllm-source-freed",
        severity=Severity.LEAK,
        title="Prefill frees blocks that may still be read",
        why="With NIXL decode reads from prefill. When prefill gives the blocks to the next prompt while the read is "
        "under way, decode takes another user's context for its own.",
        sources=(VLLM_NIXL, vllm(56465)),
        check=_source_freed,
    ),
    Rule(
        id="vllm-moriio",
        severity=Severity.LEAK,
        title="MoRIIO frees blocks by a timer",
        why="A missing acknowledgement was taken for permission to free, while a read may still refer to the blocks.",
        sources=(vllm(56465),),
        check=_moriio,
    ),
    Rule(
        id="vllm-abort-frees",
        severity=Severity.LEAK,
        title="vLLM frees blocks while they are being loaded",
        why="Before 0.16.0 an abort gave blocks to the next request while a transfer was still writing to them.",
        sources=(vllm(32255), f"{VLLM}/releases/tag/v0.16.0", f"{VLLM}/issues/46283"),
        check=_abort_frees,
    ),
    Rule(
        id="vllm-held-for-ever",
        severity=Severity.HANG,
        title="Decode waits without limit for a prefill that failed",
        why="The blocks of such a request are never free again, and in the end no request is admitted.",
        sources=(f"{VLLM}/issues/35943", f"{VLLM}/issues/46283", vllm(50984)),
        check=_held_for_ever,
    ),
    Rule(
        id="vllm-p2p-nccl",
        severity=Severity.HANG,
        title="P2pNcclConnector and random request ids",
        why="Each half adds randomness to the id that both use as a key, so that they wait for each other.",
        sources=(f"{VLLM}/issues/42839",),
        check=_p2p_nccl,
    ),
    Rule(
        id="vllm-connectors-differ",
        severity=Severity.HANG,
        title="The halves use different connectors",
        why="Nothing that one sends is understood by the other.",
        sources=(VLLM_NIXL,),
        check=_connectors,
    ),
    Rule(
        id="vllm-one-role",
        severity=Severity.HANG,
        title="All members have the same kv_role",
        why="Either nobody computes prompts for others, or nobody takes them.",
        sources=(VLLM_NIXL,),
        check=_roles,
    ),
    Rule(
        id="vllm-no-role",
        severity=Severity.HANG,
        title="A connector without a kv_role",
        why="vLLM refuses to start with a kv_connector that has no kv_role, so half of a pair is missing.",
        sources=(VLLM_NIXL,),
        check=_no_role,
    ),
    Rule(
        id="vllm-recompute",
        severity=Severity.ADVICE,
        title="Failed loads are computed again on decode",
        why="A prompt at work on a decode worker makes everybody's answers stutter.",
        sources=(VLLM_NIXL,),
        check=_recompute,
    ),
)
