"""Not to fill a log with what one peer does again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

BURST, EVERY_S = 8, 10.0
"""What may be said of one subject at once, and how long until one line more may be."""
NEWCOMERS, NEWCOMER_EVERY_S = 256, 1.0
"""The same for subjects of which nothing was said yet: a new name each time is no way around. Those that are known
already are not silenced by them."""
MOST_SUBJECTS = 1024


class _Bucket(msgspec.Struct):
    """`left` may be said, as of `at_s`; `unsaid` were not since the last one that was."""

    most: int
    every_s: float
    at_s: float
    left: float
    unsaid: int = 0

    def take(self, now_s: float) -> int | None:
        """How many were left out since the last one; None when this one is, too."""
        self.left, self.at_s = min(self.most, self.left + (now_s - self.at_s) / self.every_s), now_s
        if self.left < 1:
            self.unsaid += 1
            return None
        self.left -= 1
        unsaid, self.unsaid = self.unsaid, 0
        return unsaid


class Restraint:
    """Says which lines of a log are said. Counters are not its business: they count everything."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._newcomers = _Bucket(NEWCOMERS, NEWCOMER_EVERY_S, clock(), NEWCOMERS)
        self._subjects: dict[str, _Bucket] = {}

    def unsaid(self, subject: str) -> int | None:
        """How many lines were left out before this one about `subject`; None when this one must be, too."""
        now_s, before = self._clock(), 0
        bucket = self._subjects.pop(subject, None)
        if bucket is None:
            if (admitted := self._newcomers.take(now_s)) is None:
                return None
            before, bucket = admitted, _Bucket(BURST, EVERY_S, now_s, BURST)
        if len(self._subjects) >= MOST_SUBJECTS:
            del self._subjects[next(iter(self._subjects))]
        self._subjects[subject] = bucket  # the one that was asked about longest ago is forgotten first
        unsaid = bucket.take(now_s)
        return None if unsaid is None else unsaid + before
