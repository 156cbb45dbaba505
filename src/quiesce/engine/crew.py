"""The threads of one engine: kernels release the GIL, so plain Python threads run them side by side."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count


class Crew:
    """`threads` in all, the caller's own included."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, "quiesce-kernel") if threads > 1 else None

    def share(self, work: Callable[[int], None], pieces: int) -> None:
        """Call `work(0)` ... `work(pieces - 1)`, each once, and return when all are done. Reraises what they raise."""
        tickets = count()

        def take() -> None:
            while (piece := next(tickets)) < pieces:
                work(piece)

        helpers = [self._pool.submit(take) for _ in range(min(self.threads, pieces) - 1)] if self._pool else []
        take()
        for helper in helpers:
            helper.result()
