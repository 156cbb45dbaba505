"""Short private directories: a Unix socket's path may have 107 bytes, and pytest's own are long."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def run_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="q-") as name:
        yield Path(name) / "run"


@pytest.fixture
def made_dir(run_dir: Path) -> Path:
    """`run_dir`, made as the listener makes it."""
    run_dir.mkdir(mode=0o700)
    return run_dir
