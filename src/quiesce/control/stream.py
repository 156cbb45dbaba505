"""A connected socket that carries frames both ways for the rest of its life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from quiesce.control.connection import Connection, holds_bytes, identity_of, is_local, take
from quiesce.control.credentials import peer_credentials
from quiesce.control.dialing import dial
from quiesce.control.frames import pack, prefixed
from quiesce.control.listener import Listener, listen
from quiesce.control.outbox import Outbox
from quiesce.control.single_frame import first_frame
from quiesce.control.splitter import FrameSplitter
from quiesce.errors import BadFrame, PeerUnusable, invariant
from quiesce.trust.wording import in_words

__all__ = ["UNSENT_LIMIT_BYTES", "FrameStream", "Listener", "dial", "first_frame", "listen"]

T = TypeVar("T")

UNSENT_LIMIT_BYTES = 64 << 20
"""A peer that lets this much pile up is not reading; the stream ends rather than eat our memory."""

_READ_BYTES = 64 << 10
_PAUSE_BYTES = 1 << 20
"""Above this much unread (and at least one whole frame) we stop reading and let the sender feel it."""

_FRAMES_PER_TURN = 64
"""After this many frames without waiting, `receive` lets the loop serve others."""

_log = logging.getLogger(__name__)


class FrameStream(Generic[T]):
    """Frames in and out of a connection. Must be made on a running loop.

    It takes `sock` over, which is useless afterwards (closing it does nothing): whoever accepted the connection cannot
    close it under us. `trouble` is what the network said when it ended the stream; "" while it did not.

    Parameters
    ----------
    decode:
        payload -> frame; raises BadFrame.
    encode:
        frame -> payload of at most `MAX_FRAME_BYTES`.
    name:
        for logs and messages.
    """

    def __init__(
        self, sock: Connection, decode: Callable[[bytes], T], name: str, *, encode: Callable[[Any], bytes] = pack
    ) -> None:
        self.name = name
        self.trouble = ""
        self.identity = identity_of(sock)
        self.peer_pid = peer_credentials(sock).pid if is_local(sock) else 0
        self._loop = asyncio.get_running_loop()
        self._sock = take(sock)
        self._decode, self._encode = decode, encode
        self._inbox, self._outbox = FrameSplitter(), Outbox()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._ended = self._deaf = self._reading = False
        self._frames_this_turn = 0
        self._sock.setblocking(False)
        self._resume_reading()
        if holds_bytes(self._sock):
            self._on_readable()

    @property
    def closed(self) -> bool:
        """Whether *we* closed it; that the peer left is what `receive` says."""
        return self._closed.is_set()

    @property
    def unsent_bytes(self) -> int:
        return self._outbox.unsent_bytes

    async def receive(self) -> T | None:
        """The next frame, or None when the stream is over (end of file, reset, closed here).

        Raises BadFrame on nonsense; the stream is closed then. Only one task may receive; cancelling it
        loses no frame.
        """
        invariant(self._waiter is None, "one_receiver", self.name)
        await self._take_turns()
        while not self.closed:
            payload = self._next_payload()
            if payload is not None:
                return self._decoded(payload)
            if self._ended:
                return None
            await self._readable()
        return None

    def send(self, frame: Any) -> None:
        """Write or queue one frame; never blocks. On a stream that is over it does nothing: `receive` reports that.

        Raises PeerUnusable, and closes the stream, when more than `UNSENT_LIMIT_BYTES` would be waiting.
        """
        if self.closed or self._deaf:
            return
        data = prefixed(self._encode(frame))
        if self._outbox.unsent_bytes + len(data) > UNSENT_LIMIT_BYTES:
            self.close()
            raise PeerUnusable(f"{self.name} does not read: {UNSENT_LIMIT_BYTES} bytes wait for it", took_effect=False)
        self._outbox.push(data)
        if self._flushed.is_set():
            self._write()

    async def flush(self) -> None:
        """Wait until the kernel took everything, or the stream is over. Bound it with `asyncio.timeout`."""
        await self._flushed.wait()

    def close(self) -> None:
        """Close at once; unread and unsent bytes are dropped. May be called again."""
        if self.closed:
            return
        self._pause_reading()
        self._stop_writing()
        self._inbox.clear()
        self._sock.close()
        self._closed.set()
        self._wake()

    async def wait_closed(self) -> None:
        """Wait until `close` was called, here or by an error."""
        await self._closed.wait()

    # ------------------------------------------------------------ reading

    async def _take_turns(self) -> None:
        self._frames_this_turn += 1
        if self._frames_this_turn >= _FRAMES_PER_TURN:
            self._frames_this_turn = 0
            await asyncio.sleep(0)

    def _next_payload(self) -> bytes | None:
        try:
            payload = self._inbox.next_payload()
        except BadFrame:
            self.close()
            raise
        if not self._reading and not self._ended and not self._is_full():
            self._resume_reading()
        return payload

    def _decoded(self, payload: bytes) -> T:
        try:
            return self._decode(payload)
        except BaseException:
            self.close()
            raise

    async def _readable(self) -> None:
        self._frames_this_turn = 0
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            _log.debug("%s: reading failed: %s", self.name, error)
            self.trouble, data = in_words(error), b""
        self._inbox.feed(data)
        self._ended = not data
        if self._ended or self._is_full():
            self._pause_reading()
        self._wake()

    def _is_full(self) -> bool:
        return self._inbox.buffered_bytes >= _PAUSE_BYTES and self._inbox.has_frame

    def _resume_reading(self) -> None:
        self._loop.add_reader(self._sock.fileno(), self._on_readable)
        self._reading = True

    def _pause_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock.fileno())
            self._reading = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ writing

    def _write(self) -> None:
        try:
            self._outbox.write_to(self._sock)
        except OSError as error:
            _log.debug("%s: writing failed: %s", self.name, error)
            self._become_deaf()
        if not self._outbox.unsent_bytes:
            self._stop_writing()
        elif self._flushed.is_set():
            self._flushed.clear()
            self._loop.add_writer(self._sock.fileno(), self._write)

    def _become_deaf(self) -> None:
        """Nothing more can be sent. What the peer sent before it left is still read, and then the end is seen."""
        self._deaf = True
        self._outbox.clear()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)

    def _stop_writing(self) -> None:
        if not self._flushed.is_set():
            self._loop.remove_writer(self._sock.fileno())
            self._flushed.set()
        self._outbox.clear()
