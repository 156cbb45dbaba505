"""Doors, pairing, fair queues, quotas and breakers with one rule left out of one function."""

from __future__ import annotations

from typing import Any

from quiesce.errors import RequestRejected
from quiesce.protocol import admission, fairness, quota
from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.pairing import Side


def unchecked_decode(prompt_tokens: int, max_tokens: int | None, limits: Any) -> int:
    return max_tokens or limits.most_tokens


def reject_absent_max_tokens(prompt_tokens: int, max_tokens: int | None, limits: Any) -> int:
    if max_tokens is None:
        raise RequestRejected("max_tokens is missing", code="invalid_value")
    return honest_admit_decode(prompt_tokens, max_tokens, limits)


honest_admit_decode = admission.admit_decode


def cancel_nobody(state: Any, failure: Any, sides: Any) -> Any:
    return state, ()


def from_nothing(queue: fairness.Queue, tenant: str) -> fairness.Flow:
    return queue.flows.get(tenant) or fairness.Flow()


def _heads(queue: fairness.Queue) -> list[tuple[str, fairness.Waiting]]:
    return [(tenant, flow.waiting[0]) for tenant, flow in queue.flows.items() if flow.waiting]


def oldest_first(queue: fairness.Queue) -> tuple[str, fairness.Waiting] | None:
    return min(_heads(queue), key=lambda head: head[1].ticket, default=None)


def highest_first(queue: fairness.Queue) -> tuple[str, fairness.Waiting] | None:
    return min(_heads(queue), key=lambda head: (-head[1].priority, head[1].ticket), default=None)


def latest_first(one: fairness.Waiting, other: fairness.Waiting) -> bool:
    return (-one.priority, -one.ticket) < (-other.priority, -other.ticket)


def by_arrival(one: fairness.Waiting, other: fairness.Waiting) -> bool:
    return one.ticket < other.ticket


def unweighted(flow: fairness.Flow, tokens: int) -> int:
    return flow.reached + tokens * fairness.SCALE


def by_request(flow: fairness.Flow, tokens: int) -> int:
    return flow.reached + fairness.SCALE // flow.weight


def all_are_charged(queue: Any, tenant: str, ticket: int, placed: bool) -> Any:
    return honest_taken_out(queue, tenant, ticket, True)


honest_taken_out = fairness._taken_out


def never_settled(flow: fairness.Flow, charged_tokens: int, used_tokens: int) -> int:
    return flow.reached


def nothing_waits(flow: fairness.Flow, queue: fairness.Queue) -> bool:
    return not flow.waiting


def unfilled(bucket: quota.Bucket, now_s: float) -> quota.Bucket:
    return bucket


def overfilled(bucket: quota.Bucket, now_s: float) -> quota.Bucket:
    left = bucket.left + (now_s - bucket.at_s) * bucket.per_minute / quota.MINUTE_S
    return quota.Bucket(bucket.per_minute, left, now_s)


def take_anyway(bucket: quota.Bucket, amount: int, now_s: float) -> tuple[quota.Bucket, float]:
    now = quota.filled(bucket, now_s)
    return quota.spend(now, amount), quota.wait_for_s(now, amount)


def no_debt(bucket: quota.Bucket, amount: int) -> quota.Bucket:
    return quota.Bucket(bucket.per_minute, max(0.0, bucket.left - amount), bucket.at_s)


def blamed_by_fault(failure: Failure) -> tuple[Side, ...]:
    """Breakers: the status is not looked at."""
    return (Side.PREFILL,) if failure.fault is Fault.PREFILL else (Side.DECODE,)


NO_ORDER: frozenset[str] = frozenset()
"""Breakers: what a peer says in good order counts like anything else."""


def nothing_follows(state: Any, *given: Any) -> tuple[Any, tuple[()]]:
    """Breakers: a probe that said nothing was the last one."""
    return state, ()
