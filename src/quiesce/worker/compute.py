"""The engine thread: it owns the model's arithmetic and nothing else; the loop hands it finished plans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Compute:
    """One thread. Two plans never run at once, so `run` is also the order of arithmetic."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")

    async def run(self, plan: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: plan(*args, **kwargs))

    def close(self) -> None:
        """Wait for the plan that runs and end the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)
