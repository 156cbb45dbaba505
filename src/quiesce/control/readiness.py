"""Waiting until a non-blocking socket can be read or written, without a task or a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


async def until_readable(sock: HasDescriptor) -> None:
    loop = asyncio.get_running_loop()
    await _until(sock.fileno(), loop.add_reader, loop.remove_reader)


async def until_writable(sock: HasDescriptor) -> None:
    loop = asyncio.get_running_loop()
    await _until(sock.fileno(), loop.add_writer, loop.remove_writer)


async def _until(fd: int, add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(fd, _finish, ready)
    try:
        await ready
    finally:
        remove(fd)


def _finish(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
