"""Workers in one process, on several hosts or in processes of their own, closed at the end."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .house import House
from .tcp_house import TcpHouse
from .workers import Workers


@pytest.fixture
def directory() -> Iterator[Path]:
    """Not tmp_path: a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="q-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
async def house(directory: Path) -> AsyncIterator[House]:
    house = House(directory)
    yield house
    await house.close()


@pytest.fixture
async def hosts(directory: Path) -> AsyncIterator[TcpHouse]:
    house = TcpHouse(directory)
    yield house
    await house.close()


@pytest.fixture
async def workers(directory: Path) -> AsyncIterator[Workers]:
    workers = Workers(directory)
    yield workers
    await workers.close()
