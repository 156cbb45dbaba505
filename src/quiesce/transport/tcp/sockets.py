"""Blocking reads and vectored writes of whole messages, and the seam between plain connections and those under TLS."""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

from quiesce.errors import PeerUnusable

IOV_MOST = 512  # buffers of one call; the kernel's limit is 1024
BUFFER_BYTES = 4 << 20
LOOPBACK_BUFFER_BYTES = 512 << 10
"""Within a host nothing is under way for long; what waits in larger buffers has left the caches before it is copied."""
PIECE_BYTES = 256 << 10
"""What one call takes from the kernel at most: more keeps the sender waiting for room, and falls out of caches."""


class Hangup(PeerUnusable):
    """The other side closed the connection between two messages, or inside one (`torn`)."""

    def __init__(self, *, torn: bool) -> None:
        super().__init__("the connection ended inside a message" if torn else "the connection ended", took_effect=None)
        self.torn = torn


Buffer = bytes | memoryview
"""A view's items are bytes."""
_Buffer = TypeVar("_Buffer", bytes, memoryview, Buffer)


class Stream(Protocol):
    """A connected data connection. One thread reads, one writes; `hang_up` may be called from any."""

    def shake_hands(self, until_s: float) -> None:
        """Find out who is there, until a time of the monotonic clock. Raises OSError or PeerUnusable."""

    def recv_into(self, view: memoryview, /) -> int:
        """Wait for bytes and place some; 0 at the end."""

    def take(self, views: list[memoryview], /) -> int | None:
        """Place what has come already, in the order of `views`: None when nothing has, 0 at the end. Never waits.

        `views` are a `piece_of` more.
        """

    def wait(self) -> None:
        """Until `take` may find something."""

    def give(self, views: list[memoryview], /) -> int | None:
        """Copy what there is room for, in order: None when there is none. Never waits, and reads no view afterwards."""

    def wait_for_room(self) -> None:
        """Until `give` may find some."""

    def send(self, buffers: Sequence[Buffer], /) -> int:
        """Send every byte, in order. An OSError leaves with `sent_bytes` of what the kernel took."""

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

    def take(self, views: list[memoryview], /) -> int | None:
        try:
            return self._sock.recvmsg_into(views, 0, socket.MSG_DONTWAIT)[0]
        except BlockingIOError:
            return None

    def wait(self) -> None:
        self._poll.poll()

    def give(self, views: list[memoryview], /) -> int | None:
        try:
            return self._sock.sendmsg(views[:IOV_MOST], (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def wait_for_room(self) -> None:
        self._room.poll()

    def send(self, buffers: Sequence[Buffer], /) -> int:
        views = list(filter(len, buffers))
        first = sent = 0
        try:
            while first < len(views):
                n = self._sock.sendmsg(views[first : first + IOV_MOST])
                sent += n
                first = skip(views, first, n)
        except OSError as error:
            error.sent_bytes = sent  # type: ignore[attr-defined]
            raise
        return sent

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
    """Room for whole runs, and between hosts an end to what a partition left.

    The kernel waits longer after each loss: without that end, pages would move again long after the network had healed.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    is_within_host = ipaddress.ip_address(sock.getpeername()[0].partition("%")[0]).is_loopback
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, LOOPBACK_BUFFER_BYTES if is_within_host else BUFFER_BYTES)
    if not is_within_host:
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


def piece_of(views: Sequence[memoryview], first: int) -> list[memoryview]:
    """What of `views[first:]` is filled next: so many buffers, and bytes, as one call may take."""
    piece, left_bytes = [], PIECE_BYTES
    for view in views[first : first + IOV_MOST]:
        piece.append(view[:left_bytes])
        left_bytes -= len(piece[-1])
        if not left_bytes:
            break
    return piece


def skip(views: list[_Buffer], first: int, n_bytes: int) -> int:
    """Where the rest begins once `n_bytes` of `views[first:]` are through; a view that is through in part is cut."""
    while n_bytes:
        if n_bytes < len(views[first]):
            views[first] = views[first][n_bytes:]
            break
        n_bytes -= len(views[first])
        first += 1
    return first


def hang_up(sock: socket.socket) -> None:
    """Wake whoever is blocked on `sock`, in any thread; the descriptor stays until its owner closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
