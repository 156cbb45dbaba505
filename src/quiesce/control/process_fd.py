"""Pidfds: a handle on one process that stays right when its number is given to another."""

from __future__ import annotations

import os
from pathlib import Path

from quiesce.errors import HandshakeRefused


def own_pidfd() -> int:
    """A pidfd of this process, close-on-exec; the caller closes it."""
    return os.pidfd_open(os.getpid())


def pid_of(fd: int) -> int | None:
    """The process a pidfd stands for; None when `fd` is no pidfd, or -1 or 0 when that process is dead or foreign."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Pid":
            return int(value)
    return None


def require_pidfd_of(fd: int, pid: int) -> None:
    """Raise HandshakeRefused unless `fd` is a pidfd of the living process `pid`."""
    found = pid_of(fd)
    if found is None:
        raise HandshakeRefused("the descriptor that should stand for the peer's process is no pidfd")
    if found != pid or pid <= 0:
        raise HandshakeRefused(f"the peer's pidfd stands for process {found}, but the socket belongs to process {pid}")
