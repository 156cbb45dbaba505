"""A small HTTP server that answers what it is told to, kindly or not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

Reply = bytes
"""A whole HTTP answer. An empty one is silence: the connection stays open and nothing comes."""

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
"""Followed by bytes without end."""


def ok(body: str) -> Reply:
    content = body.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(content), content)


class FakeServer:
    """`asked` are the heads of requests so far."""

    def __init__(self, replies: Mapping[str, Reply], otherwise: Reply) -> None:
        self.replies, self.otherwise = replies, otherwise
        self.asked: list[str] = []
        self.url = ""

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            reply = self.replies.get(head.split()[1], self.otherwise)
            writer.write(reply)
            while reply == ENDLESS:
                writer.write(b"x" * 65536)
                await writer.drain()
            if not reply:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@contextmanager
def serving(replies: Mapping[str, Reply], otherwise: Reply = NOT_FOUND) -> Iterator[FakeServer]:
    """A server on a free port, on a thread of its own, until the block ends."""
    fake = FakeServer(replies, otherwise)
    started, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    def run() -> None:
        loop.run_until_complete(fake.serve(started, stop))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
