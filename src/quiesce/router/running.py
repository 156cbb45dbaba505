"""Requests that are under way, by the `id` in their answers: whoever began one may abort it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NewType

from starlette.datastructures import Headers

from quiesce.router.failures import ABORTED, GenerationFailed

Owner = NewType("Owner", bytes)
"""Who began a request: a hash of the key that it bore."""


def owner_of(headers: Headers) -> Owner:
    """Without keys everybody is the same owner, and only the id, which nobody can guess, protects a request."""
    _, _, key = headers.get("authorization", "").partition(" ")
    return Owner(hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest())


class Run:
    """One request, from the minting of its id to the last byte of its answer."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self._working: asyncio.Future[None] | None = None
        self._on_abort: Callable[[], None] = lambda: None

    async def unless_aborted(self, work: Coroutine[Any, Any, None], on_abort: Callable[[], None]) -> None:
        """Run `work` to its end. When it is aborted first: `on_abort`, cancel it, and raise GenerationFailed."""
        self._working = working = asyncio.ensure_future(work)
        self._on_abort = on_abort
        try:
            await asyncio.wait({working})
        finally:
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            elif not working.cancelled():
                working.exception()  # asked for: else the log has it when a client leaves just as its request fails
        if working.cancelled():
            raise GenerationFailed(ABORTED)
        working.result()

    async def abort(self) -> None:
        """Until its halves have been told."""
        if self._working is not None and not self._working.done():
            self._on_abort()
            self._working.cancel()
            await asyncio.wait({self._working})


class Running:
    """All requests that have an id. Lives on one event loop."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    @contextlib.contextmanager
    def named(self, name: str, owner: Owner) -> Iterator[Run]:
        """`name` is minted by us, so no two requests have the same."""
        run = self._runs[name] = Run(owner)
        try:
            yield run
        finally:
            del self._runs[name]

    async def abort(self, name: str, owner: Owner | None) -> bool:
        """Whether `name` runs and is `owner`'s (None: anybody's): then it ends now.

        Somebody else's is as unknown as one that is over.
        """
        run = self._runs.get(name)
        if run is None or owner not in (None, run.owner):
            return False
        await run.abort()
        return True

    async def abort_all(self) -> None:
        """Every one that runs now."""
        await asyncio.gather(*(run.abort() for run in list(self._runs.values())))
