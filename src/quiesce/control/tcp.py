"""TCP sockets that carry control frames: they notice a peer that is gone, and they prove who is there."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from quiesce.control.connection import Connection, TlsConnection
from quiesce.control.readiness import until_readable, until_writable

GONE_AFTER_S = 4
"""What stays unanswered for so long ends the connection. That detects, and proves nothing: decisions follow the
protocol."""

_LAST_WORD_S = 0.5
_DROPPED_BYTES = 64 << 10

_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, GONE_AFTER_S - 1),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_AFTER_S * 1000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


def tune(sock: socket.socket) -> None:
    """Small frames leave at once, and a half-open connection ends although nobody has anything to say."""
    for level, option, value in _OPTIONS:
        sock.setsockopt(level, option, value)


End = tuple[str, int]
"""IP address and port of one end of a connection."""


def ends(connection: Connection) -> tuple[End, End] | None:
    """Ours and the other one of a TCP connection; None for any other, or one that is over."""
    sock = connection.socket if isinstance(connection, TlsConnection) else connection
    if not isinstance(sock, socket.socket) or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        return _end(sock.getsockname()), _end(sock.getpeername())
    except OSError:
        return None


def _end(name: tuple[str, int]) -> End:
    """A listener of both families sees IPv4 as mapped."""
    return name[0].removeprefix("::ffff:"), name[1]


def _tell_nobody(error: ssl.SSLError) -> None:
    """Whoever dials hears of it soon enough."""


async def secured(
    sock: socket.socket,
    context: ssl.SSLContext | None,
    *,
    host: str | None = None,
    refused: Callable[[ssl.SSLError], None] = _tell_nobody,
) -> Connection:
    """`sock`, or TLS over it, once both sides have proved who they are. `host` is whom we dialled; None: we accepted.

    Takes the descriptor over. Raises ssl.SSLError and other OSErrors; everything is closed then. `refused` hears of an
    SSLError at once; it is raised after the other side has had time to read why.
    """
    if context is None:
        return sock
    tls = context.wrap_socket(
        sock, server_side=host is None, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=True
    )
    try:
        await _shake_hands(tls)
    except BaseException as error:
        with contextlib.closing(tls):
            if isinstance(error, ssl.SSLError):
                refused(error)
                await _let_it_read(tls)
        raise
    return TlsConnection(tls)


async def _let_it_read(tls: ssl.SSLSocket) -> None:
    """Why we refuse it has been written. To close with bytes unread would reset the connection, and take that back."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_LAST_WORD_S):
            socket.socket.shutdown(tls, socket.SHUT_WR)
            while True:
                await until_readable(tls)
                if not socket.socket.recv(tls, _DROPPED_BYTES):
                    return


async def _shake_hands(tls: ssl.SSLSocket) -> None:
    while True:
        try:
            return tls.do_handshake()
        except ssl.SSLWantReadError:
            await until_readable(tls)
        except ssl.SSLWantWriteError:
            await until_writable(tls)
