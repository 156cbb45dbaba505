"""A listening Unix socket that hands each connection of our own user to a coroutine."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from quiesce.control.credentials import require_same_user
from quiesce.control.socket_file import bind_private, identity
from quiesce.errors import PeerUnusable, QuiesceError

OnConnection = Callable[[socket.socket], Awaitable[None]]

_ACCEPTS_PER_TURN = 32
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


async def listen(path: str | os.PathLike[str], on_connection: OnConnection) -> Listener:
    """Listen on `path`; each accepted connection runs `on_connection(sock)` in a task of the listener.

    The coroutine owns the socket; if it raises, the socket is closed and the error logged. Connections of other users
    are closed at once. Raises ConfigurationError when the path cannot be used.
    """
    return Listener(Path(path), on_connection)


class Listener:
    """What `listen` returns."""

    def __init__(self, path: Path, on_connection: OnConnection) -> None:
        self.path = path
        self._on_connection = on_connection
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._sock = bind_private(path)
        self._identity = identity(path)
        self._loop.add_reader(self._sock.fileno(), self._on_readable)

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    def close(self) -> None:
        """Stop accepting and remove the socket file if it is still ours. Connections live on. May be called again."""
        if self.closed:
            return
        self._stop_accepting()
        if identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)
        self._sock.close()

    async def stop(self) -> None:
        """`close`, then cancel what still runs for connections and wait for it."""
        self.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_readable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._admit(sock)

    def _accept_failed(self, error: OSError) -> None:
        if error.errno not in _OUT_OF_RESOURCES:
            raise error
        _log.warning("cannot accept on %s for now: %s", self.path, error.strerror)
        self._stop_accepting()
        self._pause = self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def _stop_accepting(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _admit(self, sock: socket.socket) -> None:
        try:
            sock.setblocking(False)
            require_same_user(sock)
        except (PeerUnusable, OSError) as error:
            _log.warning("refused a connection on %s: %s", self.path, error)
            sock.close()
            return
        task = self._loop.create_task(self._serve(sock))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._over(done, sock))

    async def _serve(self, sock: socket.socket) -> None:
        await self._on_connection(sock)

    def _over(self, task: asyncio.Task[None], sock: socket.socket) -> None:
        # Here and not in `_serve`: a task that is cancelled before its first step never enters its body.
        self._tasks.discard(task)
        if task.cancelled():
            sock.close()
        elif error := task.exception():
            sock.close()
            self._log_failure(error)

    def _log_failure(self, error: BaseException) -> None:
        if isinstance(error, QuiesceError):
            _log.info("a connection on %s ended: %s", self.path, error)
        else:
            _log.error("a connection on %s failed", self.path, exc_info=error)
