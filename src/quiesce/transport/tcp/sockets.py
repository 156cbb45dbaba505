"""Blocking reads and vectored writes of whole messages."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Sequence

from quiesce.errors import PeerUnusable

IOV_MOST = 512  # buffers of one call; the kernel's limit is 1024
BUFFER_BYTES = 4 << 20


class Hangup(PeerUnusable):
    """The other side closed the connection between two messages, or inside one (`torn`)."""

    def __init__(self, *, torn: bool) -> None:
        super().__init__("the connection ended inside a message" if torn else "the connection ended", took_effect=None)
        self.torn = torn


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
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    if not ipaddress.ip_address(sock.getpeername()[0].partition("%")[0]).is_loopback:
        for level, option, value in _NOTICING:
            sock.setsockopt(level, option, value)


def receive_exactly(sock: socket.socket, n_bytes: int, until_s: float | None = None) -> bytes:
    """The next `n_bytes`. Raises Hangup when the stream ends first, OSError as the socket does.

    `until_s`, a time of the monotonic clock, bounds all of it: TimeoutError, which is an OSError.
    """
    data = bytearray(n_bytes)
    view, got = memoryview(data), 0
    while got < n_bytes:
        if until_s is not None:
            sock.settimeout(max(until_s - time.monotonic(), 0.001))
        n = sock.recv_into(view[got:])
        if n == 0:
            raise Hangup(torn=got > 0)
        got += n
    return bytes(data)


def send_all(sock: socket.socket, buffers: Sequence[bytes | memoryview]) -> int:
    """Send every byte of `buffers`, in order. An OSError leaves with `sent_bytes` of what the kernel took."""
    views = [memoryview(each).cast("B") for each in buffers if len(each)]
    first = sent = 0
    try:
        while first < len(views):
            n = sock.sendmsg(views[first : first + IOV_MOST])
            sent += n
            first = skip(views, first, n)
    except OSError as error:
        error.sent_bytes = sent  # type: ignore[attr-defined]
        raise
    return sent


def skip(views: list[memoryview], first: int, n_bytes: int) -> int:
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
