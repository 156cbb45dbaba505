"""The file of a listening Unix socket: private, and replaced only when nobody answers on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from quiesce.errors import ConfigurationError

_BACKLOG = 128


def bind_private(path: Path) -> socket.socket:
    """A non-blocking listening socket at `path`, mode 0600, in a directory that only we can write.

    The directory is made (0700) if it is missing. Raises ConfigurationError when it cannot be used, or when somebody
    already listens there.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(path.parent)
        with _alone_in(path.parent):
            _remove_stale(path)
            return _bound(path)
    except OSError as error:
        raise ConfigurationError([f"cannot listen on {path}: {error.strerror or error}"]) from error


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at `path`, or None: is it still the one that we made?"""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _require_private(directory: Path) -> None:
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise ConfigurationError([f"directory {directory} belongs to another user; sockets there could be replaced"])
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigurationError(
            [f"directory {directory} can be written by others; use one of your own: mkdir -m 700 DIRECTORY"]
        )


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keep a second starter from taking our socket for a stale one between `bind` and `listen`."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remove_stale(path: Path) -> None:
    if identity(path) is None:
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigurationError([f"{path} exists and is no socket; choose another path or remove it"])
    if _is_answered(path):
        raise ConfigurationError([f"another process already listens on {path}"])
    path.unlink(missing_ok=True)


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # a full backlog: very much alive
            return True
    return True


def _bound(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(os.fspath(path))
        path.chmod(0o600)  # before `listen`, so nobody can have connected yet
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
