"""What the router has done in the last two minutes, second by second, for people who look at it."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

SPAN_S = 120
MOST_FIRST_TOKENS = 512


class Throughput:
    """Counts per whole second of `clock`; older than `SPAN_S` is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens: dict[int, int] = {}
        self._requests: dict[int, int] = {}
        self._first_tokens: deque[tuple[float, float]] = deque(maxlen=MOST_FIRST_TOKENS)

    def tokens(self, count: int) -> None:
        """Tokens of answers came."""
        self._add(self._tokens, count)

    def first_token(self, seconds: float) -> None:
        """A first token came so long after its request."""
        self._first_tokens.append((self._clock(), seconds))

    def ended(self) -> None:
        """A request ended, in whatever way."""
        self._add(self._requests, 1)

    def tokens_per_second(self) -> list[int]:
        """Tokens of each of the last `SPAN_S` whole seconds, the oldest first."""
        return self._last(self._tokens, SPAN_S)

    def token_rate(self) -> float:
        """Tokens per second over the last five whole seconds."""
        return sum(self._last(self._tokens, 5)) / 5

    def request_rate(self) -> float:
        """Requests per second that ended in the last minute."""
        return sum(self._last(self._requests, 60)) / 60

    def first_token_s(self) -> float | None:
        """Median time to the first token of those of the last two minutes; None when there was none."""
        since_s = self._clock() - SPAN_S
        return statistics.median(found) if (found := [s for at, s in self._first_tokens if at >= since_s]) else None

    def _add(self, counts: dict[int, int], count: int) -> None:
        now = int(self._clock())
        if now not in counts:
            for second in [second for second in counts if second < now - SPAN_S]:
                del counts[second]
        counts[now] = counts.get(now, 0) + count

    def _last(self, counts: dict[int, int], seconds: int) -> list[int]:
        """The second that is not over is left out."""
        now = int(self._clock())
        return [counts.get(second, 0) for second in range(now - seconds, now)]
