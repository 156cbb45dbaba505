"""Where one `quiesce serve` keeps its sockets: a directory that only its user can enter, gone when it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from quiesce.cli.port import url
from quiesce.errors import MachineLacksError, UsageError

_NO_SERVER = "Start one with `quiesce serve`, or say --run-dir, or ask a router: `quiesce inspect --router URL`."
_PREFIX = "quiesce-"
_LOCK = "lock"
# A Unix socket's path has at most 107 bytes; a worker's name needs some of them.
_LONGEST_PATH_BYTES = 80


def base_directory() -> Path:
    """`$XDG_RUNTIME_DIR`, else the directory for temporary files."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())


@contextlib.contextmanager
def run_directory(base: Path | None = None) -> Iterator[Path]:
    """Make a run directory (0700), hold its lock, remove it at the end; sweep those whose server is gone.

    Raises `MachineLacksError` when none can be made there.
    """
    base = base or base_directory()
    _sweep(base)
    path = _make(base)
    lock = _hold(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def serving_directory(run_dir: Path | None, base: Path | None = None) -> Path:
    """The run directory `run_dir`, or that of the only server that runs.

    Raises `UsageError` when none or several do, or no worker serves there.
    """
    directory = run_dir or _only(base or base_directory())
    if not worker_sockets(directory):
        raise UsageError(f"{directory} has no worker sockets.", remedy="Is a server starting or stopping there?")
    return directory


def _only(base: Path) -> Path:
    running = sorted(path for path in _ours(base) if _is_held(path))
    if not running:
        raise UsageError(f"no server runs from {base}.", remedy=_NO_SERVER)
    if len(running) > 1:
        listed = "".join(f"\n  --run-dir {server_line(path)}" for path in running)
        raise UsageError(f"{len(running)} servers run here; say which one is meant:{listed}")
    return running[0]


def server_line(run_dir: Path) -> str:
    """Which server a run directory is of: `DIR (http://127.0.0.1:8000, model smollm2)`."""
    told = process_settings(run_dir).get("router", {})
    try:
        where = url(str(told["host"]), int(str(told["port"])))
    except (KeyError, ValueError):
        return str(run_dir)
    return f"{run_dir} ({where}, model {told.get('served-model-name') or told.get('model')})"


def process_settings(run_dir: Path) -> dict[str, dict[str, object]]:
    """What the supervisor told each process. A file that is half written is left out."""
    found = {}
    for path in sorted(run_dir.glob("*.toml")):
        try:
            found[path.stem] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return found


def worker_sockets(run_dir: Path) -> list[Path]:
    """Sockets of the workers in a run directory, by name."""
    return sorted(path for path in run_dir.glob("*.sock") if path.is_socket())


def _make(base: Path) -> Path:
    path = base / f"{_PREFIX}{os.getpid()}"
    if path.exists():  # someone else's, or our own second server
        path = base / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise MachineLacksError(f"{path} is too long a path for sockets.", remedy="Set XDG_RUNTIME_DIR to a short one.")
    try:
        path.mkdir(mode=0o700)
    except OSError as problem:
        raise MachineLacksError(f"cannot make {path}: {problem.strerror}.", remedy="Set XDG_RUNTIME_DIR.") from None
    return path


def _hold(path: Path) -> int:
    """Take the lock before it has its name, or a server that starts now would take it for an abandoned one."""
    unnamed = path / f"{_LOCK}.new"
    lock = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(path / _LOCK)
    return lock


def _sweep(base: Path) -> None:
    """Remove what servers left that were killed outright. A process id may have come back: the lock is the proof."""
    for path in _ours(base):
        if (path / _LOCK).exists() and not _is_held(path):
            shutil.rmtree(path, ignore_errors=True)


def _ours(base: Path) -> list[Path]:
    return [path for path in base.glob(f"{_PREFIX}*") if _is_private(path)]


def _is_private(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _is_held(path: Path) -> bool:
    """Whether the server that made `path` is alive: only its process holds the lock."""
    return is_locked(path / _LOCK)


def is_locked(file: Path) -> bool:
    """Whether a process holds this lock. Shared for the moment of looking: who looks too does not take us for it."""
    try:
        probe = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False
