"""What the spares of a server hold, and whether one waits: told by a lock, which the kernel ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import msgspec

from quiesce.cli.run_directory import is_locked, process_settings

ROLE = "spare"


class WaitingSpare(msgspec.Struct, frozen=True):
    """`holds` is what it has loaded. Not `waiting`: it loads, has just taken a place, or was given up."""

    name: str
    holds: str
    waiting: bool
    role: str = ROLE


@contextlib.contextmanager
def waiting_at(file: str) -> Iterator[None]:
    """Lock `file`, if it has a name, while this process waits. Who has become somebody is no spare any more."""
    if not file:
        yield
        return
    with Path(file).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def waiting_file(run_dir: Path, name: str) -> Path:
    """What a spare of that name locks."""
    return run_dir / f"{name}.waiting"


def spares(run_dir: Path) -> list[WaitingSpare]:
    """Those that the server of a run directory keeps, by name."""
    return [
        WaitingSpare(name, str(said["holds"]), is_locked(waiting_file(run_dir, name)))
        for name, said in process_settings(run_dir).items()
        if "holds" in said
    ]
