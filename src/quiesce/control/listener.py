"""A listening Unix socket that hands each connection of our own user to a coroutine."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from quiesce.control.acceptor import Acceptor
from quiesce.control.credentials import require_same_user
from quiesce.control.socket_file import bind_private, identity

OnConnection = Callable[[socket.socket], Awaitable[None]]


async def listen(path: str | os.PathLike[str], on_connection: OnConnection) -> Listener:
    """Listen on `path`; each accepted connection runs `on_connection(sock)` in a task of the listener.

    The coroutine owns the socket; if it raises, the socket is closed and the error logged. Connections of other users
    are closed at once. Raises ConfigurationError when the path cannot be used.
    """
    return Listener(Path(path), on_connection)


class Listener(Acceptor):
    """What `listen` returns."""

    def __init__(self, path: Path, on_connection: OnConnection) -> None:
        super().__init__(bind_private(path), path)
        self.path = path
        self._on_connection = on_connection
        self._identity = identity(path)

    def close(self) -> None:
        """Stop accepting and remove the socket file if it is still ours. Connections live on. May be called again."""
        if not self.closed and identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)
        super().close()

    def check(self, sock: socket.socket) -> None:
        require_same_user(sock)

    async def serve(self, sock: socket.socket) -> None:
        await self._on_connection(sock)
