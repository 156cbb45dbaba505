"""Whether one tenant can tell what another has asked: cached tokens that are told, and time that is saved."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from quiesce.audit.exact_tests import shorter
from quiesce.audit.intervals import rate
from quiesce.audit.observation import Observation
from quiesce.audit.verdict import ALPHA, Check, Status, made

WARMS, AGAIN = "first warms", "first again"
KNOWN, NEW = "second, warmed by first", "second, new"

FEWEST_PROBES = 8
"""With fewer the exact test cannot become significant by enough."""

_CACHED, _TIMED = "Cached tokens across tenants", "Time saved across tenants"


def _of(role: str, seen: Sequence[Observation]) -> list[Observation]:
    return [each for each in seen if each.role == role and each.is_answer]


def cached_check(seen: Sequence[Observation]) -> Check:
    """The second key's first question about the first key's prefix must find no more than a new prefix does."""
    known, new, again = _of(KNOWN, seen), _of(NEW, seen), _of(AGAIN, seen)
    told = [each.usage.cached_tokens for each in (*known, *new, *again) if each.usage.cached_tokens is not None]
    if not known or not new or not any(told):
        why = "There was one key." if not known else "The endpoint tells of no cached tokens."
        return made("tenants-cached", _CACHED, Status.NOT_TESTED, why)
    usual = max(each.usage.cached_tokens or 0 for each in new)
    shared = [each for each in known if (each.usage.cached_tokens or 0) > usual]
    own = max((each.usage.cached_tokens or 0 for each in again), default=0)
    details = [
        f"request {each.ask}: {each.usage.cached_tokens} tokens were cached, {usual} are usual" for each in shared
    ]
    said = (
        f"{len(shared)} of {len(known)} questions of the second key found the first key's prefix "
        f"(a prefix of its own: up to {own} cached tokens, a new one: up to {usual})."
    )
    status = Status.SUSPECTED if shared else Status.PASSED
    return made("tenants-cached", _CACHED, status, said, details, found=rate(len(shared), len(known)))


def timing_check(seen: Sequence[Observation]) -> Check:
    """Rank-sum tests: the second key on a warmed prefix against new ones, once the first key's own show a cache."""
    warms, again, known, new = (_times(role, seen) for role in (WARMS, AGAIN, KNOWN, NEW))
    if min(len(known), len(new)) < FEWEST_PROBES:
        return made("tenants-timing", _TIMED, Status.NOT_TESTED, "There were too few questions of a second key.")
    works = shorter(again, warms)
    p = shorter(known, new)
    said = (
        f"The second key's first token came after {median(known) * 1000:.1f} ms on a prefix that the first had warmed, "
        f"{median(new) * 1000:.1f} ms on a new one (medians of {len(known)} and {len(new)}; p = {p:.3g})"
    )
    if p < ALPHA:
        return made("tenants-timing", _TIMED, Status.SUSPECTED, f"{said}.", p=p)
    if works >= ALPHA:
        why = f"Time shows no cache even to the key that warmed it (p = {works:.3g}), so it would show none to others."
        return made("tenants-timing", _TIMED, Status.NOT_TESTED, why, p=p)
    return made(
        "tenants-timing", _TIMED, Status.PASSED, f"{said}; to the first key its cache shows (p = {works:.3g}).", p=p
    )


def _times(role: str, seen: Sequence[Observation]) -> list[float]:
    return [each.ttft_s if each.ttft_s is not None else each.total_s for each in _of(role, seen)]
