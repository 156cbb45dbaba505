"""Waiting for what happens in the router's queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .conftest import Deployment


async def waiting(deployment: Deployment, count: int) -> None:
    """Until so many requests wait at the router."""
    assert deployment.server is not None
    turns = deployment.server.service.turns
    await until(turns, "_count", lambda: len(turns._waiting) == count)


async def until(subject: object, method: str, true: Callable[[], bool]) -> None:
    """Wait for what can only become true when this method is called."""
    called, honest = asyncio.Event(), getattr(subject, method)

    def told(*given: object) -> None:
        honest(*given)
        called.set()

    setattr(subject, method, told)
    async with asyncio.timeout(60):
        while not true():
            called.clear()
            await called.wait()
    setattr(subject, method, honest)
