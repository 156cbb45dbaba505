"""Not to fill a log with what one peer does again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

BURST, EVERY_S = 8, 10.0
"""What may be said of one subject at once, and how long until one line more may be."""
MOST_BURST, MOST_EVERY_S = 256, 1.0
"""The same for all subjects together: whoever comes under a new name each time is one of them."""
MOST_SUBJECTS = 1024


class _Bucket(msgspec.Struct):
    """`left` lines may be said, as of `at_s`; `unsaid` were not since the last one that was."""

    left: float
    at_s: float
    unsaid: int = 0

    def refill(self, now_s: float, burst: int, every_s: float) -> None:
        self.left, self.at_s = min(burst, self.left + (now_s - self.at_s) / every_s), now_s


class Restraint:
    """Says which lines of a log are said. Counters are not its business: they count everything."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = _Bucket(MOST_BURST, clock())
        self._subjects: dict[str, _Bucket] = {}

    def unsaid(self, subject: str) -> int | None:
        """How many lines about `subject` were not said since the last one; None when this one must not be either."""
        now_s = self._clock()
        bucket = self._subjects.pop(subject, None) or _Bucket(BURST, now_s)
        if len(self._subjects) >= MOST_SUBJECTS:
            del self._subjects[next(iter(self._subjects))]
        self._subjects[subject] = bucket  # the one that was asked about longest ago is forgotten first
        bucket.refill(now_s, BURST, EVERY_S)
        self._all.refill(now_s, MOST_BURST, MOST_EVERY_S)
        if bucket.left < 1 or self._all.left < 1:
            bucket.unsaid += 1
            return None
        bucket.left -= 1
        self._all.left -= 1
        unsaid, bucket.unsaid = bucket.unsaid, 0
        return unsaid
