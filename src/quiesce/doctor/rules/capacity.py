"""What holds cost: whether the pool survives the aborts."""

from __future__ import annotations

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, Unknown, label
from quiesce.doctor.fleet import Engine, Field, Fleet, Member, Role, Told
from quiesce.doctor.rules.links import OUR_WATCH, sglang
from quiesce.doctor.rules.release import release
from quiesce.doctor.rules.releases import FIRST_SWITCH, WRITE_S

_MUCH, _ALL = 0.2, 0.8
"""Shares of a pool: from the first on holds are felt, from the second on the pool runs dry."""

_REMEDY = "Tell it with --tell aborts-per-s=0.5 --tell tokens-per-request=60000; your router's log knows both."


def _held_share(fleet: Fleet) -> Seen:
    for member in fleet.members:
        share = member.number(Field.HELD_SHARE)
        if share is not None and share > _MUCH:
            yield Hit(
                member.places(Field.HELD_SHARE),
                f"{label(member)}: {share:.0%} of the pool waits for proofs.",
                "Find what makes holds long (docs/observability.md), or give decode a larger pool.",
                _severity(share),
            )


def _held_capacity(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG, Role.DECODE):
        pool, hold = member.number(Field.POOL_TOKENS), _hold(member)
        if hold is None or pool is None:
            continue
        held = _held_tokens(fleet, member, float(hold.value))
        if held is None:
            yield Unknown(
                f"how many requests per second are aborted, and how long they are, at {label(member)}", _REMEDY
            )
        elif held > _MUCH * pool:
            yield Hit(
                (hold.evidence, *member.places(Field.POOL_TOKENS, Field.HELD_REQUESTS)),
                f"{label(member)}: holds of {float(hold.value):.3g} s keep about {held:.0f} of {pool:.0f} tokens "
                f"({held / pool:.0%}) from everybody.",
                "Give decode a larger pool, bound the length of prompts, or shorten what holds wait for (smaller "
                "batches of a transfer, shorter chunks of prefill); do not shorten the hold itself.",
                _severity(held / pool),
            )


def _severity(share: float) -> Severity:
    return Severity.HANG if share >= _ALL else Severity.ADVICE


def _hold(member: Member) -> Told | None:
    """How long a hold lasts: as measured, else at most."""
    version = release(member)
    if version is not None and version < FIRST_SWITCH:
        return None
    return member.told(Field.HOLD_MEAN_S) or member.known(Field.HOLD_S, WRITE_S)


def _held_tokens(fleet: Fleet, member: Member, hold_s: float) -> float | None:
    """Little's law: arrivals times the time that each stays; or what is held at this moment."""
    tokens, aborts = fleet.traffic.tokens_per_request, fleet.traffic.aborts_per_s
    held = member.number(Field.HELD_REQUESTS)
    if held == 0 and aborts is None:
        return 0.0
    requests = held if aborts is None else aborts * hold_s
    return None if tokens is None or requests is None else requests * tokens


RULES = (
    Rule(
        id="held-capacity",
        severity=Severity.HANG,
        title="Holds would use up decode's pool",
        why="Held capacity is the rate of aborts, times the time of a hold, times the size of a request. When it nears "
        "the pool, nothing is admitted any more, and clients that time out make more aborts.",
        sources=(sglang(27372), sglang(35049), sglang(35360)),
        check=_held_capacity,
    ),
    Rule(
        id="held-share",
        severity=Severity.HANG,
        title="Much of the pool is held now",
        why="Held pages serve nobody. When aborts come faster than holds end, the pool runs dry and requests wait.",
        sources=(OUR_WATCH,),
        check=_held_share,
    ),
)
