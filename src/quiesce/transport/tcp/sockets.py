"""Blocking reads and vectored writes of whole messages, and the seam between plain connections and those under TLS."""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import time
from collections.abc import Sequence
from typing import Protocol

from quiesce.errors import PeerUnusable
from quiesce.transport.tcp.spans import Spans
from quiesce.transport.tcp.vectored import RECVMSG, SENDMSG, Vectored

BUFFER_BYTES = 4 << 20
LOOPBACK_BUFFER_BYTES = 512 << 10
"""Within a host nothing is under way for long; what waits in larger buffers has left the caches before it is copied."""
UNPACED = b"reno"
"""Within a host: every kernel has it. BBR, where it is the default, paces by a timer what goes nowhere: decode slept 18
times for 16 MiB, not 5.
"""
PIECE_BYTES = 256 << 10
"""What one call takes from the kernel at most: more keeps the sender waiting for room, and falls out of caches."""


class Hangup(PeerUnusable):
    """The other side closed the connection between two messages, or inside one (`torn`)."""

    def __init__(self, *, torn: bool) -> None:
        super().__init__("the connection ended inside a message" if torn else "the connection ended", took_effect=None)
        self.torn = torn


Buffer = bytes | memoryview
"""A view's items are bytes."""


class Stream(Protocol):
    """A connected data connection. One thread reads, one writes; `hang_up` may be called from any."""

    def shake_hands(self, until_s: float) -> None:
        """Find out who is there, until a time of the monotonic clock. Raises OSError or PeerUnusable."""

    def recv_into(self, view: memoryview, /) -> int:
        """Wait for bytes and place some; 0 at the end."""

    def take(self, spans: Spans, /) -> int | None:
        """Place what has come already, and advance `spans`: None when nothing has, 0 at the end. Never waits."""

    def wait(self) -> None:
        """Until `take` may find something."""

    def give(self, spans: Spans, /) -> int | None:
        """Copy what there is room for, and advance `spans`: None when there is none. Never waits, and reads no byte
        afterwards.
        """

    def wait_for_room(self) -> None:
        """Until `give` may find some."""

    def send(self, buffers: Sequence[Buffer], /) -> None:
        """Send every byte, in order."""

    def send_spans(self, spans: Spans, /) -> None:
        """Send all that is left. After an OSError the kernel took no byte of `spans` that are whole."""

    def settimeout(self, seconds: float | None, /) -> None: ...

    def tune(self) -> None: ...

    @property
    def is_spent(self) -> bool:
        """Whether so much went through that another connection should be made."""

    def hang_up(self) -> None:
        """Wake whoever waits in it; what it holds stays until `close`."""

    def close(self) -> None: ...


class PlainStream:
    """A socket as it is: pages are read and written where they lie, many with one call."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._take, self._give = Vectored(RECVMSG, sock), Vectored(SENDMSG, sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._room = select.poll()
        self._room.register(sock, select.POLLOUT)

    @property
    def is_spent(self) -> bool:
        return False

    def shake_hands(self, until_s: float) -> None:
        """Whoever connected is there."""

    def recv_into(self, view: memoryview, /) -> int:
        return self._sock.recv_into(view)

    def take(self, spans: Spans, /) -> int | None:
        return self._take(spans, PIECE_BYTES, socket.MSG_DONTWAIT)

    def wait(self) -> None:
        self._poll.poll()

    def give(self, spans: Spans, /) -> int | None:
        return self._give(spans, spans.left_bytes, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def wait_for_room(self) -> None:
        self._room.poll()

    def send(self, buffers: Sequence[Buffer], /) -> None:
        self._sock.sendall(b"".join(buffers))

    def send_spans(self, spans: Spans, /) -> None:
        while spans.left_bytes:
            if self._give(spans, spans.left_bytes, socket.MSG_NOSIGNAL) is None:
                self.wait_for_room()

    def settimeout(self, seconds: float | None, /) -> None:
        self._sock.settimeout(seconds)

    def tune(self) -> None:
        tune(self._sock)

    def hang_up(self) -> None:
        hang_up(self._sock)

    def close(self) -> None:
        self._sock.close()


GONE_AFTER_S = 4
"""A host that acknowledges nothing, or takes nothing, for so long has its connections broken."""
_NOTICING = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, GONE_AFTER_S - 1),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_AFTER_S * 1000),
)


def tune(sock: socket.socket) -> None:
    """Room for whole runs. Within a host nothing is congested, and between hosts what a partition left has an end.

    The kernel waits longer after each loss: without that end, pages would move again long after the network had healed.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    is_within_host = ipaddress.ip_address(sock.getpeername()[0].partition("%")[0]).is_loopback
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, LOOPBACK_BUFFER_BYTES if is_within_host else BUFFER_BYTES)
    if is_within_host:
        with contextlib.suppress(OSError):  # not allowed here: it is only slower
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
        return
    for level, option, value in _NOTICING:
        sock.setsockopt(level, option, value)


def receive_exactly(stream: Stream, n_bytes: int, until_s: float | None = None) -> bytes:
    """The next `n_bytes`. Raises Hangup when the stream ends first, OSError as the socket does.

    `until_s`, a time of the monotonic clock, bounds all of it: TimeoutError, which is an OSError.
    """
    data = bytearray(n_bytes)
    view, got = memoryview(data), 0
    while got < n_bytes:
        if until_s is not None:
            stream.settimeout(max(until_s - time.monotonic(), 0.001))
        n = stream.recv_into(view[got:])
        if n == 0:
            raise Hangup(torn=got > 0)
        got += n
    return bytes(data)


def hang_up(sock: socket.socket) -> None:
    """Wake whoever is blocked on `sock`, in any thread; the descriptor stays until its owner closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
