"""Connecting to a socket of `listener`."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

from quiesce.control.credentials import require_same_user
from quiesce.errors import PeerUnusable

_RETRY_S = 0.01


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


def _unreachable(path: str | os.PathLike[str], error: OSError | TimeoutError) -> PeerUnusable:
    why = error.strerror if isinstance(error, OSError) and error.strerror else "it does not answer"
    ours = error.errno in (errno.EMFILE, errno.ENFILE) if isinstance(error, OSError) else False
    remedy = "Raise the limit of open files." if ours else "Is that process running?"
    return PeerUnusable(f"cannot connect to {os.fspath(path)}: {why}.", remedy=remedy, took_effect=False)
