"""The end of a router: nothing new begins, what runs may finish, and is ended in words when there is no more time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from quiesce.errors import RequestRejected
from quiesce.router.failures import SERVER_DRAINING, SERVER_STOPPING, GenerationFailed
from quiesce.router.fleet import Fleet

T = TypeVar("T")


class Stopping:
    """Counts requests, and ends them all with `server_stopping`, each by its own way out. Lives on one event loop.

    `leaving`: load balancers are told to look elsewhere. `draining`: nothing new may begin.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._running = 0
        self._called_off = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.leaving = self.draining = False

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """A request, from its arrival to the last byte of its answer."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @property
    def running(self) -> int:
        """Requests under way."""
        return self._running

    def check_arrival(self) -> None:
        """Raises RequestRejected when nothing new may begin, while what began before may go on."""
        if self.draining:
            raise RequestRejected(SERVER_DRAINING.message, code=SERVER_DRAINING.code, status=SERVER_DRAINING.status)

    async def idle(self) -> None:
        """Wait until no request is under way."""
        await self._idle.wait()

    def call_off(self) -> int:
        """End every request now; the number of those that ran."""
        self._called_off.set()
        self._fleet.call_off(SERVER_STOPPING)
        return self._running

    def check(self) -> None:
        """Raises GenerationFailed when nothing may begin any more."""
        if self._called_off.is_set():
            raise GenerationFailed(SERVER_STOPPING)

    async def unless_called_off(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work`, which comes before any generation, returns. Raises GenerationFailed when it is called off."""
        working = asyncio.ensure_future(work)
        waiting = asyncio.ensure_future(self._called_off.wait())
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise GenerationFailed(SERVER_STOPPING)
            return working.result()
        finally:
            working.cancel()
            waiting.cancel()
            await asyncio.gather(working, waiting, return_exceptions=True)
