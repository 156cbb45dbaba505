"""A TCP socket to listen on."""

from __future__ import annotations

import socket

from quiesce.errors import ConfigurationError

BACKLOG = 2048
MAX_PORT = 65535


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket. Raises ConfigurationError when the address cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError([f"cannot listen on {host} port {port}: {error.strerror or error}"]) from error
