"""How much an audit may ask: requests and tokens in all, requests in a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quiesce.audit.options import Options


class Allowance:
    """Counts what was spent. `now_s` is a clock that only goes forward."""

    def __init__(self, options: Options, now_s: Callable[[], float]) -> None:
        self.requests = 0
        self.tokens = 0
        self._options = options
        self._now_s = now_s
        self._next_s = 0.0

    def allows(self, tokens: int) -> bool:
        """Whether a request of at most so many tokens may still be made."""
        options = self._options
        return self.requests < options.max_requests and self.tokens + tokens <= options.budget_tokens

    def spend(self, tokens: int) -> None:
        self.tokens += tokens

    async def turn(self) -> None:
        """Wait until the rate permits the next request."""
        self.requests += 1
        if not self._options.rate_per_s:
            return
        now_s = self._now_s()
        at_s = max(now_s, self._next_s)
        self._next_s = at_s + 1 / self._options.rate_per_s
        await asyncio.sleep(at_s - now_s)
