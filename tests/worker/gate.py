"""Holds a function of the engine thread until a test lets it go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

LONG_S = 60.0
"""How long anything may take before a test gives up."""


class Gate:
    """Called on the engine thread in place of `inner`: says that it was reached, and waits until `open`."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._reached = asyncio.Event()
        self._let_go = threading.Event()

    @classmethod
    def on(cls, owner: object, name: str) -> Gate:
        """A gate in the place of a method of `owner`."""
        gate = cls(getattr(owner, name))
        setattr(owner, name, gate)
        return gate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._loop.call_soon_threadsafe(self._reached.set)
        self._let_go.wait(LONG_S)
        return self._inner(*args, **kwargs)

    async def reached(self) -> None:
        async with asyncio.timeout(LONG_S):
            await self._reached.wait()

    def open(self) -> None:
        self._let_go.set()
