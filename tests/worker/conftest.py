"""A house of workers, closed at the end."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .house import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    # Not tmp_path: a socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="q-", dir="/tmp") as directory:
        house = House(Path(directory))
        yield house
        await house.close()
