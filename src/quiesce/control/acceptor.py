"""Accepting connections: each gets a task of its own, and none can end the listening."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from quiesce.control.connection import Connection
from quiesce.control.restraint import Restraint
from quiesce.errors import PeerUnusable, QuiesceError

OnConnection = Callable[[Connection], Awaitable[None]]

_ACCEPTS_PER_TURN = 32
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_OF_THE_NETWORK = (
    *(errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EHOSTDOWN),
    *(errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ENONET),
)
"""Linux reports what befell a connection that waited as an error of `accept`."""
_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


class Acceptor(ABC):
    """A listening socket. What is accepted runs in tasks of the acceptor; if one raises, its socket is closed.

    `shown` is the address, for logs.
    """

    def __init__(self, sock: socket.socket, shown: object) -> None:
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._restraint = Restraint()
        self._sock = sock
        self._loop.add_reader(self._sock.fileno(), self._on_readable)

    @abstractmethod
    def check(self, sock: socket.socket) -> None:
        """Look at a new connection before anything is read from it. Raises PeerUnusable or OSError: it is closed."""

    @abstractmethod
    async def serve(self, sock: socket.socket) -> None:
        """Serve one connection to its end."""

    def began(self, task: asyncio.Task[None]) -> None:  # noqa: B027 - most acceptors need not know
        """`serve` is about to run in `task`."""

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    def close(self) -> None:
        """Stop accepting. Connections live on. May be called again."""
        if not self.closed:
            self._stop_accepting()
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
        if error.errno in _OF_THE_NETWORK:
            return
        if error.errno not in _OUT_OF_RESOURCES:
            raise error
        _log.warning("cannot accept on %s for now: %s", self._shown, error.strerror)
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
            self.check(sock)
        except (PeerUnusable, OSError) as error:
            self._say(logging.WARNING, f"refused a connection on {self._shown}", error)
            sock.close()
            return
        task = self._loop.create_task(self.serve(sock))
        self._tasks.add(task)
        self.began(task)
        task.add_done_callback(lambda done: self._over(done, sock))

    def _over(self, task: asyncio.Task[None], sock: socket.socket) -> None:
        # Here and not in `serve`: a task that is cancelled before its first step never enters its body.
        self._tasks.discard(task)
        if task.cancelled():
            sock.close()
        elif error := task.exception():
            sock.close()
            self._log_failure(error)

    def _log_failure(self, error: BaseException) -> None:
        if isinstance(error, QuiesceError):
            self._say(logging.INFO, f"a connection on {self._shown} ended", error)
        else:
            _log.error("a connection on %s failed", self._shown, exc_info=error)

    def _say(self, level: int, what: str, error: Exception) -> None:
        """In the log, but not again and again: whoever may connect may say nonsense as often as it likes."""
        if (unsaid := self._restraint.unsaid(what)) is not None:
            more = f" ({unsaid} more lines like this were left out)" if unsaid else ""
            _log.log(level, "%s: %s%s", what, error, more)
