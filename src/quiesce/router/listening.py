"""A TCP socket to listen on, from before the first client to after the last one."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence

from quiesce.errors import ConfigurationError

BACKLOG = 2048
MAX_PORT = 65535
_TURNS = 3
"""Turns of the loop after which an accepted connection surely has its protocol."""


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket. Raises ConfigurationError when the address cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except UnicodeError:
        raise ConfigurationError([f"cannot listen on {host} port {port}: that is no host's name"]) from None
    except OSError as error:
        raise ConfigurationError([f"cannot listen on {host} port {port}: {error.strerror or error}"]) from error


async def callers_in(socks: Sequence[socket.socket], within_s: float) -> None:
    """Wait until the loop has accepted whoever has connected: who still waits when a port closes is reset, unheard.

    Whoever connects without a pause does not keep it open for longer than `within_s`.
    """
    waiting = select.poll()
    for sock in socks:
        waiting.register(sock, select.POLLIN)
    clock = asyncio.get_running_loop().time
    deadline_s, empty = clock() + within_s, 0
    while clock() < deadline_s:
        empty = 0 if waiting.poll(0) else empty + 1
        if empty == _TURNS:  # and in this very turn the port can be closed
            return
        await asyncio.sleep(0)
