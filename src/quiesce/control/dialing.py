"""Connecting to a socket of `listener`, or to a port of `tcp_listener`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from pathlib import Path
from typing import Any

from quiesce.control.address import Address, TcpAddress, show_address
from quiesce.control.connection import Connection
from quiesce.control.credentials import require_same_user
from quiesce.control.security import LOCAL, Security
from quiesce.control.tcp import secured, tune
from quiesce.errors import PeerUnusable
from quiesce.trust.wording import in_words

_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT)
_RETRY_S = 0.01
_TCP_TRY_S = 2.0
"""After this the next try sends a fresh SYN: the kernel's own next one would come late after a partition."""


async def connect(address: Address, timeout_s: float = 10.0, security: Security = LOCAL) -> Connection:
    """A connection to `address`. Raises PeerUnusable; for TCP also when the peer cannot prove who it is."""
    if isinstance(address, Path):
        return await dial(address, timeout_s)
    try:
        return await _dial_tcp(address, min(timeout_s, _TCP_TRY_S), timeout_s, security)
    except (OSError, TimeoutError) as error:
        raise _unreachable(show_address(address), error) from error
    except UnicodeError as error:  # the resolver's, for what can be no name
        raise PeerUnusable(f"{show_address(address)} can be no host: {error}", took_effect=False) from error


async def dial(path: str | os.PathLike[str], timeout_s: float = 10.0) -> socket.socket:
    """A connected non-blocking socket to `path`, whose listener runs as our user.

    A listener that is busy is waited for up to `timeout_s`; one that is not there is reported at once, and so is
    that no socket can be made here (too many open files). Raises PeerUnusable.
    """
    try:
        return await _connected(os.fspath(path), timeout_s)
    except (OSError, TimeoutError) as error:
        raise _unreachable(path, error) from error


async def _connected(path: str, timeout_s: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(timeout_s):
            await _connect(sock, path)
        require_same_user(sock)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect(sock: socket.socket, path: str) -> None:
    # Not loop.sock_connect: a Unix socket whose backlog is full answers EAGAIN, which asyncio takes for "in progress"
    # and then for success.
    while True:
        try:
            return sock.connect(path)
        except (BlockingIOError, InterruptedError):
            await asyncio.sleep(_RETRY_S)


async def _dial_tcp(address: TcpAddress, try_s: float, timeout_s: float, security: Security) -> Connection:
    """The first of the host's addresses that answers, in the resolver's order."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        found = await loop.getaddrinfo(address.at or address.host, address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, where in found[:-1]:
            with contextlib.suppress(OSError):
                return await _dial_at(socket.socket(family, kind, protocol), where, try_s, security, address.host)
        family, kind, protocol, _, where = found[-1]
        return await _dial_at(socket.socket(family, kind, protocol), where, try_s, security, address.host)


async def _dial_at(sock: socket.socket, where: Any, try_s: float, security: Security, host: str) -> Connection:
    try:
        sock.setblocking(False)
        tune(sock)
        async with asyncio.timeout(try_s):
            await asyncio.get_running_loop().sock_connect(sock, where)
        return await secured(sock, security.dialling, host=host)
    except BaseException:
        sock.close()
        raise


def _unreachable(path: str | os.PathLike[str], error: OSError | TimeoutError) -> PeerUnusable:
    why = _why(error)
    return PeerUnusable(f"cannot connect to {os.fspath(path)}: {why}.", remedy=_remedy(error), took_effect=False)


def _remedy(error: OSError | TimeoutError) -> str:
    """Whoever speaks TLS with us, or rather does not, is running."""
    if isinstance(error, ssl.SSLError):
        return "Look at the certificates and --tls-ca of both sides."
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the limit of open files."
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return "Is its host up, and the network between? Does a firewall drop packets?"
    if isinstance(error, TimeoutError):
        return "Is that process stopped, or its host or the network down?"
    return "Is that process running?"


def _why(error: OSError | TimeoutError) -> str:
    """asyncio words the errors of `connect` in its own way, ssl and the resolver have numbers of their own."""
    if isinstance(error, ssl.SSLError):
        return in_words(error)
    if isinstance(error, socket.gaierror):
        return str(error.strerror or error)
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it does not answer"
