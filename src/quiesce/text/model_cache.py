"""Where converted models are kept, and how several processes that start at once make one of them only once."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quiesce.errors import MachineLacksError


def cache_root() -> Path:
    """`$QUIESCE_CACHE`, else `$XDG_CACHE_HOME/quiesce`, else `~/.cache/quiesce`. Not created here."""
    if chosen := os.environ.get("QUIESCE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quiesce"


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock that belongs to `path` (a file beside it) against other processes; it ends with its process.

    Raises MachineLacksError when the directory cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.parent / f".{path.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise MachineLacksError(
            f"the model cache {path.parent} cannot be written ({error.strerror}).",
            remedy="Set QUIESCE_CACHE to a directory that can.",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def make_once(path: Path, make: Callable[[Path], None]) -> Path:
    """Unless `path` exists, let `make` write it under a temporary name and rename it: others see all or nothing."""
    if path.exists():
        return path
    with exclusive(path):
        if not path.exists():
            scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            try:
                make(scratch / path.name)
                (scratch / path.name).replace(path)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return path


def remove_made() -> int:
    """Remove what was made in the cache, and nothing else that may lie there; the bytes that are free now.

    What is ours has a lock file beside it. Whoever is making something is waited for.
    """
    freed_bytes = 0
    for lock in sorted(cache_root().glob("*/.*.lock")):
        path = lock.with_name(lock.name.removeprefix(".").removesuffix(".lock"))
        with exclusive(path):
            # A scratch directory is left by somebody who was killed while making it.
            for left in [path, *path.parent.glob(f".{path.name}.*")]:
                if left.is_dir():
                    freed_bytes += size_bytes(left)
                    shutil.rmtree(left)
    return freed_bytes


def size_bytes(directory: Path) -> int:
    """Of all files below it."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
