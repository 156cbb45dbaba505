"""Other builds of the product: copies of its sources in which something differs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import quiesce

SOURCES = Path(quiesce.__file__).parent


@contextlib.contextmanager
def build(file: str, old: str, new: str) -> Iterator[Path]:
    """What PYTHONPATH must be for the build in whose `file` there is `new` instead of `old`.

    Kernels are compiled for a place, which takes long: a copy takes the engine from ours.
    """
    with tempfile.TemporaryDirectory(prefix="q-build-") as directory:
        copy = Path(directory) / "quiesce"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__", "engine"))
        (copy / "engine").mkdir()
        (copy / "engine" / "__init__.py").write_text(f"__path__ = [{str(SOURCES / 'engine')!r}]\n", encoding="utf-8")
        changed = copy / file
        text = changed.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        changed.write_text(text.replace(old, new), encoding="utf-8")
        yield Path(directory)
