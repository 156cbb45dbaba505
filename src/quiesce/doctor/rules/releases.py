"""SGLang: when decode gives the pages of an aborted request to somebody else."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, label, untold
from quiesce.doctor.fleet import Engine, Field, Fleet, Member, Part, Role, Told
from quiesce.doctor.rules.links import SGLANG_ENVIRONMENT, sglang, sglang_issue
from quiesce.doctor.rules.release import before, release, unversioned
from quiesce.doctor.versions import shown

SWITCH = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE"
TIMEOUT = f"{SWITCH}_TIMEOUT"
CAP = "SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES"

FIRST_SWITCH = (0, 5, 19)
FIRST_CAP = (0, 5, 20)
FIRST_DEFAULT = (0, 5, 21)
FIRST_MORI = (0, 5, 22)
FIRST_FAILED_SENDS = (0, 5, 23)

WRITE_S = 30.0
"""How long one Mooncake write may be under way by default (`MC_TRANSFER_TIMEOUT`)."""
MARGIN_S = 30.0
"""For the abort to reach prefill, and for the computation that is at work there."""
LONG_CONTEXT_TOKENS = 131_072

_ENVIRONMENT_REMEDY = f"Tell the environment, for example --tell {SWITCH}=1; logs and answers do not show it."


def halves(fleet: Fleet) -> Iterator[Member]:
    """SGLang's prefill and decode workers."""
    return fleet.of(Engine.SGLANG, Role.PREFILL, Role.DECODE)


def backend(member: Member) -> str | None:
    """mooncake, nixl, mori, ...; None when it cannot be known."""
    told = member.known(Field.BACKEND, "mooncake")
    return str(told.value) if told else None


def _unprotected(fleet: Fleet) -> Seen:
    for member in halves(fleet):
        version = release(member)
        if version is None:
            yield unversioned(member)
        elif version < FIRST_SWITCH:
            yield Hit(
                member.places(Field.VERSION),
                f"{label(member)} is SGLang {shown(version)}: it frees the pages of an aborted request at once, and no "
                "setting makes it wait for the writes that are under way.",
                "Update prefill and decode together to SGLang 0.5.23 or newer.",
            )


def _switched_off(fleet: Fleet) -> Seen:
    for member in halves(fleet):
        version = release(member)
        if version is None or version < FIRST_SWITCH:
            continue
        default = version >= FIRST_DEFAULT
        switch = member.known(Field.DEFERRED_RELEASE, default)
        if switch is None:
            yield untold(member, Field.DEFERRED_RELEASE, _ENVIRONMENT_REMEDY)
        elif switch.value is not True:
            yield Hit(
                (switch.evidence, *member.places(Field.VERSION)),
                f"{label(member)}: pages of aborted requests are freed at once ({SWITCH} is off).",
                f"Set {SWITCH}=1 on prefill and on decode, both; or update both to SGLang 0.5.23, where it is on.",
            )


def _mori(fleet: Fleet) -> Seen:
    for member in halves(fleet):
        if backend(member) == "mori" and before(member, FIRST_MORI):
            yield Hit(
                member.places(Field.BACKEND, Field.VERSION),
                f"{label(member)} transfers with MORI, which before SGLang 0.5.22 marks an aborted request as failed "
                "without saying when its writes have ended.",
                "Update prefill and decode to SGLang 0.5.22 or newer, or use another transfer backend.",
            )


def _failed_sends(fleet: Fleet) -> Seen:
    for member in halves(fleet):
        name = backend(member)
        if name in ("nixl", "mori") and before(member, FIRST_FAILED_SENDS):
            yield Hit(
                member.places(Field.BACKEND, Field.VERSION),
                f"{label(member)}: a {name} send that failed counts as ended, although its bytes may still be under "
                "way.",
                "Update prefill and decode to SGLang 0.5.23 or newer.",
            )


def _hold_too_short(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG, Role.DECODE):
        hold = member.known(Field.HOLD_S, WRITE_S, says=f"{TIMEOUT}: not set, so {WRITE_S:g} s")
        if not waits(member):
            continue
        if hold is None:
            yield untold(member, Field.HOLD_S, _ENVIRONMENT_REMEDY)
            continue
        write = _longest_write(fleet, member)
        if write is None:
            yield Hit(
                member.places(Field.BACKEND),
                f"{label(member)}: a MORI write may be under way without limit (SGLANG_MORI_TRANSFER_TIMEOUT_MS is 0).",
                "Set SGLANG_MORI_TRANSFER_TIMEOUT_MS=30000 on prefill, and a longer hold on decode.",
            )
        elif float(hold.value) < float(write.value) + MARGIN_S:
            yield _short(member, hold, write)


def waits(member: Member) -> bool:
    """Whether it surely holds the pages of an aborted request for a while; else there is a worse finding."""
    version = release(member)
    if version is None or version < FIRST_SWITCH:
        return False
    switch = member.known(Field.DEFERRED_RELEASE, version >= FIRST_DEFAULT)
    return switch is not None and switch.value is True


def _longest_write(fleet: Fleet, decode: Member) -> Told | None:
    """How long one write may be under way, in seconds: prefill's limit, where it is told; None for no limit."""
    writers = [*fleet.of(Engine.SGLANG, Role.PREFILL), decode]
    if backend(decode) == "mori":
        limits = [told for writer in writers if (told := writer.told(Field.MORI_TRANSFER_MS))]
        if not limits:
            shows = all(Part.ENVIRONMENT in writer.shown for writer in writers)
            return None if shows else Told(WRITE_S, decode.source)
        told = max(limits, key=lambda limit: float(limit.value))
        return msgspec.structs.replace(told, value=float(told.value) / 1000) if told.value else None
    limits = [told for writer in writers if (told := writer.told(Field.TRANSFER_S))]
    return max(limits, key=lambda limit: float(limit.value), default=Told(WRITE_S, decode.source))


def _short(member: Member, hold: Told, write: Told) -> Hit:
    longest_s = float(write.value)
    told = Field.HOLD_S in member.facts or before(member, FIRST_DEFAULT)
    wanted = max(60.0, longest_s + MARGIN_S)
    return Hit(
        (hold.evidence, write.evidence),
        f"{label(member)} frees held pages after {float(hold.value):g} s, acknowledged or not; one write alone may be "
        f"under way for {longest_s:g} s, and the abort has to reach prefill first.",
        f"Set {TIMEOUT} to {wanted:g} or more on decode (60 to 120 is usual), or lower prefill's limit of one write.",
        Severity.LEAK if told else Severity.ADVICE,
    )


_CAP_NOW = (
    f"Set {CAP}=1024 on prefill (SGLang {shown(FIRST_CAP)} or newer): a call is short then, and stops at an abort."
)
_CAP_LATER = (
    f"Bring prefill and decode to SGLang 0.5.23 or newer, then set {CAP}=1024 on prefill; releases before "
    f"{shown(FIRST_CAP)} have no such variable."
)


def _uncapped(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG, Role.PREFILL):
        context = member.number(Field.CONTEXT_TOKENS)
        if backend(member) != "mooncake" or context is None or context < LONG_CONTEXT_TOKENS:
            continue
        too_old = before(member, FIRST_CAP)
        cap = member.known(Field.BATCH_CAP, 0) or (Told(0, member.source) if too_old else None)
        if cap is None:
            yield untold(member, Field.BATCH_CAP, f"Tell the environment, for example --tell {CAP}=1024.")
        elif too_old or not cap.value:
            yield Hit(
                (*member.places(Field.CONTEXT_TOKENS), cap.evidence),
                f"{label(member)} may hand a prompt of {int(context)} tokens to Mooncake in one call, which can take "
                "longer than any hold lasts, and than Mooncake itself allows.",
                _CAP_LATER if too_old else _CAP_NOW,
                Severity.LEAK if before(member, FIRST_DEFAULT) else Severity.HANG,
            )


def _aborted_prefills(fleet: Fleet) -> Seen:
    for member in halves(fleet):
        if before(member, (0, 5, 20)):
            yield Hit(
                member.places(Field.VERSION),
                f"{label(member)} lacks the change that retires aborted prefills of a pair (in 0.5.20).",
                "Update prefill and decode to SGLang 0.5.23 or newer.",
            )


def _admits_rejected(fleet: Fleet) -> Seen:
    for member in halves(fleet):
        if before(member, (0, 5, 21)):
            yield Hit(
                member.places(Field.VERSION),
                f"{label(member)} may hand off a request that its own door has rejected (until 0.5.21).",
                "Update prefill and decode to SGLang 0.5.21 or newer; until then keep the limits of both alike.",
            )


def _no_metric(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG, Role.DECODE):
        if before(member, FIRST_MORI) and not before(member, FIRST_SWITCH):
            yield Hit(
                member.places(Field.VERSION),
                f"{label(member)} does not count how held pages were released (until 0.5.22), so nobody sees timers "
                "fire.",
                "Update to SGLang 0.5.22 or newer and alert on releases by time-out.",
            )


def _mixed(fleet: Fleet) -> Seen:
    for prefill, decode in fleet.pairs():
        ours, theirs = release(prefill), release(decode)
        if ours is not None and theirs is not None and ours != theirs:
            yield Hit(
                (*prefill.places(Field.VERSION), *decode.places(Field.VERSION)),
                f"{label(prefill)} is {shown(ours)}, {label(decode)} is {shown(theirs)}.",
                f"Run the same version on both halves, {shown(max(ours, theirs))} or newer; update prefill first.",
                None if prefill.engine is Engine.SGLANG else Severity.HANG,
            )


def _timers_fire(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG):
        late, total = member.number(Field.TIMEOUT_RELEASES), member.number(Field.RELEASES)
        if late and total:
            yield Hit(
                member.places(Field.TIMEOUT_RELEASES),
                f"{label(member)}: {late:g} of {total:g} holds ({late / total:.1%}) ended by a timer, without the "
                "acknowledgement that the writes had ended.",
                f"Raise {TIMEOUT}, find out why acknowledgements are late, and treat answers of that time as suspect.",
            )


RULES = (
    Rule(
        id="sglang-release-unprotected",
        severity=Severity.LEAK,
        title="SGLang frees pages while a write is under way",
        why="Prefill writes into decode's pages with one-sided writes that nobody can recall. When decode gives "
        "the pages "
        "of an aborted request to the next one, the late write puts one user's context into another user's answer.",
        sources=(sglang_issue(24527), sglang(32564), sglang(35049)),
        check=_unprotected,
    ),
    Rule(
        id="sglang-release-off",
        severity=Severity.LEAK,
        title="Deferred release is off",
        why="From 0.5.19 on decode can hold the pages of an aborted request until prefill says that its writes have "
        "ended. In 0.5.19 and 0.5.20 that is off by default, and it works only when both halves have it on.",
        sources=(sglang(35049), sglang(35360), sglang(37454), SGLANG_ENVIRONMENT),
        check=_switched_off,
    ),
    Rule(
        id="sglang-mori",
        severity=Severity.LEAK,
        title="MORI does not say when its writes have ended",
        why="Without an acknowledgement from the writer a hold is either missing or ends by its timer.",
        sources=(sglang(37454), sglang(37077)),
        check=_mori,
    ),
    Rule(
        id="sglang-failed-sends",
        severity=Severity.LEAK,
        title="A failed NIXL or MORI send counts as ended",
        why="A library that says that a send failed may still be reading the source or writing the destination; pages "
        "that are freed then are written to by somebody else's transfer.",
        sources=(sglang(35360), sglang(38961), sglang(37077)),
        check=_failed_sends,
    ),
    Rule(
        id="sglang-hold-too-short",
        severity=Severity.LEAK,
        title="The hold is shorter than what it waits for",
        why="A hold must outlast the abort's way to prefill plus the longer of the computation and the write that are "
        "under way there. SGLang ends a hold by a timer; a timer that fires first frees pages under a write.",
        sources=(sglang(35049), sglang(27372), SGLANG_ENVIRONMENT),
        check=_hold_too_short,
    ),
    Rule(
        id="sglang-batch-uncapped",
        severity=Severity.LEAK,
        title="One write may hold a whole long prompt",
        why="Mooncake moves everything of a call or fails it; a call for hundreds of thousands of tokens can exceed "
        "its own time limit, take the session down, and outlast every hold.",
        sources=(sglang(32758), SGLANG_ENVIRONMENT),
        check=_uncapped,
    ),
    Rule(
        id="sglang-aborted-prefills",
        severity=Severity.HANG,
        title="Aborted prefills are not retired",
        why="The half that goes on keeps pages and a place in the batch for a request that nobody waits for.",
        sources=(sglang(36988),),
        check=_aborted_prefills,
    ),
    Rule(
        id="sglang-admits-rejected",
        severity=Severity.ADVICE,
        title="A rejected request may still be handed off",
        why="Decode then reads pages that nobody filled. It needs a request that one door refuses: with equal limits "
        "on both halves, and pools that hold the context, there is hardly one.",
        sources=(sglang(38935), sglang_issue(30233)),
        check=_admits_rejected,
    ),
    Rule(
        id="sglang-no-release-metric",
        severity=Severity.ADVICE,
        title="Nobody counts releases by time-out",
        why="A release by a timer is a release without proof. Without the metric it leaves no trace.",
        sources=(sglang(43719),),
        check=_no_metric,
    ),
    Rule(
        id="mixed-versions",
        severity=Severity.LEAK,
        title="The halves of a pair have different versions",
        why="Aborts and acknowledgements are a protocol between the halves. One that does not speak it the same way "
        "answers too early, or never.",
        sources=(sglang(38961), sglang(37454)),
        check=_mixed,
    ),
    Rule(
        id="sglang-timers-fire",
        severity=Severity.LEAK,
        title="Holds end by a timer",
        why="Each such release was a guess that the writes had ended by then.",
        sources=(sglang(43719), sglang(38961)),
        check=_timers_fire,
    ),
)
