"""Waiting until a server is up: every worker greets, then the router says it is ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

from quiesce.cli.attachment import Attachment
from quiesce.errors import PeerUnusable
from quiesce.protocol.dispatch import Welcome

_MOST_ANSWER_BYTES = 1 << 20
_POLL_S = 0.1
_ANSWER_S = 60.0
"""The router's first readiness answer may wait for a real generation."""


async def greeting(socket: Path) -> Welcome:
    """Wait, without limit, until the worker at `socket` accepts; what it says of itself."""
    while True:
        try:
            attachment = await Attachment.open(socket)
        except PeerUnusable:
            await asyncio.sleep(_POLL_S)
        else:
            attachment.close()
            return attachment.welcome


async def answering(host: str, port: int) -> None:
    """Wait, without limit, until GET /readiness answers anything."""
    status = 0
    while status == 0:
        await asyncio.sleep(_POLL_S)
        status = await _status(host, port)


async def ready(host: str, port: int) -> None:
    """Wait, without limit, until GET /readiness answers 200."""
    status = 0
    while status != 200:
        await asyncio.sleep(_POLL_S)
        status = await _status(host, port)


async def _status(host: str, port: int) -> int:
    """The HTTP status of /readiness; 0 when nobody answers sensibly."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await _ask(host, port)
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0


async def _ask(host: str, port: int) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"GET /readiness HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = int((await reader.readline()).split()[1])
        await _rest(reader)
        return status
    finally:
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> None:
    """Whoever closes with bytes unread resets the connection, and the router would see its answer fail."""
    left = _MOST_ANSWER_BYTES
    while left > 0 and (part := await reader.read(left)):
        left -= len(part)
