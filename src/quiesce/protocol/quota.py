"""What one tenant may have in a minute: buckets that fill steadily and may be in debt, and when to come back.

The time is told by whoever asks; nothing here looks at a clock.
"""

from __future__ import annotations

import math

import msgspec

MINUTE_S = 60.0
LONGEST_RETRY_S = 60


class Bucket(msgspec.Struct, frozen=True):
    """`left` of what `per_minute` gives, at `at_s`; below 0 it is owed. Full, it holds one minute's worth."""

    per_minute: int
    left: float
    at_s: float


def full(per_minute: int, now_s: float) -> Bucket:
    """A bucket of which nothing was taken yet."""
    return Bucket(per_minute, float(per_minute), now_s)


def filled(bucket: Bucket, now_s: float) -> Bucket:
    """The bucket as it is now: never more than full, whatever the clock did."""
    passed_s = max(0.0, now_s - bucket.at_s)
    left = bucket.left + passed_s * bucket.per_minute / MINUTE_S
    return Bucket(bucket.per_minute, min(float(bucket.per_minute), left), max(now_s, bucket.at_s))


def take(bucket: Bucket, amount: int, now_s: float) -> tuple[Bucket, float]:
    """(bucket', 0.0) when `amount` was there; else nothing is taken, and the seconds until it is (inf: never)."""
    now = filled(bucket, now_s)
    wait_s = wait_for_s(now, amount)
    return (now, wait_s) if wait_s else (spend(now, amount), 0.0)


def wait_for_s(bucket: Bucket, amount: int) -> float:
    """How long until `amount` is in a bucket that is as of now."""
    if amount > bucket.per_minute:
        return math.inf
    return max(0.0, (amount - bucket.left) * MINUTE_S / bucket.per_minute)


def spend(bucket: Bucket, amount: int) -> Bucket:
    """Take `amount` whether it is there or not (then it is owed); give back when it is negative."""
    left = min(float(bucket.per_minute), bucket.left - amount)
    return Bucket(bucket.per_minute, left, bucket.at_s)


def limited_to(bucket: Bucket, per_minute: int, now_s: float) -> Bucket:
    """The bucket under another limit: what was taken in the last minute stays taken."""
    now = filled(bucket, now_s)
    return Bucket(per_minute, now.left - now.per_minute + per_minute, now.at_s)


def reset_s(bucket: Bucket) -> float:
    """How long until a bucket that is as of now is full."""
    return (bucket.per_minute - bucket.left) * MINUTE_S / bucket.per_minute


def retry_after_s(waiting: int, placed: int, over_s: float) -> int:
    """When to come back to a queue in which `waiting` are before one, if `placed` were placed in the last `over_s`."""
    if not placed:
        return min(LONGEST_RETRY_S, max(1, waiting))
    return min(LONGEST_RETRY_S, max(1, math.ceil(waiting * over_s / placed)))
