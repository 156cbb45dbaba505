"""Waiting for a router: what its answer says, and that it could say it."""

from __future__ import annotations

import asyncio

from quiesce.cli import probe

BODY = b"x" * (300 << 10)


async def test_an_answer_is_taken_whole() -> None:
    """Closed with bytes unread, the connection is reset, and the router has an error to tell of at each start."""
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY)
        writer.write_eof()
        try:
            ends.put_nowait("closed" if await reader.read() == b"" else "spoke on")
        except ConnectionError as error:
            ends.put_nowait(type(error).__name__)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(20):
        await probe.ready("127.0.0.1", server.sockets[0].getsockname()[1])
        assert await ends.get() == "closed"


async def test_an_answer_without_an_end_is_not_read_for_ever() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        try:
            while True:
                writer.write(BODY)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(20):
        await probe.answering("127.0.0.1", server.sockets[0].getsockname()[1])
