"""A listening TCP port: whoever connects proves by certificate who it is before a byte of it is believed."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time

from quiesce.control.acceptor import Acceptor, OnConnection
from quiesce.control.address import Address, TcpAddress, show_address
from quiesce.control.listener import Listener, listen
from quiesce.control.security import Security
from quiesce.control.tcp import secured, tune
from quiesce.errors import ConfigurationError
from quiesce.trust.wording import in_words

AUTHENTICATE_S = 5.0
"""For the whole TLS handshake, however its bytes drip."""
MOST_STRANGERS = 64
"""Connections that have not proved who they are; one more, and the one that has been silent longest is closed."""
AGAIN_S = 60.0
_MOST_SAID = 256

_BACKLOG = 128

_log = logging.getLogger(__name__)


async def open_listener(address: Address, on_connection: OnConnection, security: Security) -> Listener | TcpListener:
    """Listen on a socket file or a port. Raises ConfigurationError when the address cannot be had."""
    if isinstance(address, TcpAddress):
        return TcpListener(address, on_connection, security, await _bound(address))
    return await listen(address, on_connection)


class TcpListener(Acceptor):
    """`address` is the one that is listened on, with its true port. Who proves nothing is told nothing."""

    def __init__(
        self, address: TcpAddress, on_connection: OnConnection, security: Security, sock: socket.socket
    ) -> None:
        self.address = TcpAddress(address.host, sock.getsockname()[1])
        self._on_connection = on_connection
        self._security = security
        self._strangers: dict[asyncio.Task[None], None] = {}
        self._said_s: dict[str, float] = {}
        super().__init__(sock, show_address(self.address))

    def check(self, sock: socket.socket) -> None:
        tune(sock)

    def began(self, task: asyncio.Task[None]) -> None:
        if len(self._strangers) >= MOST_STRANGERS:
            self._complain(f"{MOST_STRANGERS} connections that prove nothing: the oldest is closed for a new one")
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.cancel()
        self._strangers[task] = None
        task.add_done_callback(self._no_stranger)

    def _no_stranger(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._strangers.pop(task, None)

    async def serve(self, sock: socket.socket) -> None:
        who = _peer_host(sock)
        try:
            async with asyncio.timeout(AUTHENTICATE_S):
                connection = await secured(sock, self._security.accepting, refused=lambda e: self._refused(who, e))
        except (OSError, TimeoutError) as error:
            sock.close()
            if not isinstance(error, ssl.SSLError):
                self._refused(who, error)
            return
        self._no_stranger(asyncio.current_task())
        try:
            await self._on_connection(connection)
        finally:
            connection.close()  # without effect when it was given to another owner

    def _refused(self, who: str, error: OSError) -> None:
        late = isinstance(error, TimeoutError)
        why = "it did not prove in time who it is" if late else in_words(error)
        self._complain(f"a connection from {who} was refused: {why}", who)

    def _complain(self, what: str, who: str = "") -> None:
        """Say it, but the same thing not again for a while, and nothing to whoever fills a log by knocking."""
        now_s = time.monotonic()
        if now_s < self._said_s.get(what, -AGAIN_S) + AGAIN_S or self._restraint.unsaid(who) is None:
            return
        self._said_s.pop(what, None)
        if len(self._said_s) >= _MOST_SAID:
            del self._said_s[next(iter(self._said_s))]
        self._said_s[what] = now_s
        _log.warning("%s: %s", self._shown, what)


def _peer_host(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "nobody"  # it has left


async def _bound(address: TcpAddress) -> socket.socket:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        sock = socket.create_server(found[0][4][:2], family=found[0][0], backlog=_BACKLOG)
    except OSError as error:
        why = f"cannot listen on {show_address(address)}: {error.strerror or error}"
        raise ConfigurationError([why]) from error
    sock.setblocking(False)
    return sock
