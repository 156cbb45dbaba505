"""Bytes that a socket has not taken yet."""

from __future__ import annotations

from collections import deque
from itertools import islice

from quiesce.control.connection import Connection

_CHUNKS_PER_CALL = 64
"""Well under the kernel's IOV_MAX of 1024; more per call saves nothing."""


class Outbox:
    """A queue of byte strings, written in batches to a non-blocking connection."""

    def __init__(self) -> None:
        self._chunks: deque[memoryview] = deque()
        self.unsent_bytes = 0

    def push(self, data: bytes) -> None:
        self._chunks.append(memoryview(data))
        self.unsent_bytes += len(data)

    def write_to(self, sock: Connection) -> None:
        """Write until the queue is empty or the socket is full. Raises OSError when the peer is gone."""
        while self._chunks:
            try:
                self._drop(sock.sendmsg(list(islice(self._chunks, _CHUNKS_PER_CALL))))
            except (BlockingIOError, InterruptedError):
                return

    def clear(self) -> None:
        self._chunks.clear()
        self.unsent_bytes = 0

    def _drop(self, n_bytes: int) -> None:
        self.unsent_bytes -= n_bytes
        while n_bytes:
            chunk = self._chunks.popleft()
            if n_bytes < len(chunk):
                self._chunks.appendleft(chunk[n_bytes:])
                return
            n_bytes -= len(chunk)
