"""Real worker processes with several connections for page data between two of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control.trial import files

from .asking import BOTH
from .rig import prompt_ids
from .workers import Workers

pytestmark = pytest.mark.slow

ESTABLISHED, LISTENS = "01", "0A"


def connections(pid: int) -> int:
    """How many connections a process holds at the one TCP port that it listens on."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    files_of_it = set(_files(pid))
    ours = [(row[1], row[3]) for row in rows if f"socket:[{row[9]}]" in files_of_it]
    (port,) = (address for address, state in ours if state == LISTENS)
    return sum((address, state) == (port, ESTABLISHED) for address, state in ours)


def _files(pid: int) -> Iterator[str]:
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            yield each.readlink().name


@pytest.mark.parametrize("transfer", ["push", "pull"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_pages_travel_over_as_many_connections_as_were_asked_for(
    workers: Workers, transfer: str, secure: bool
) -> None:
    """They are made when there is something to carry, by whichever side dials."""
    told: dict[str, Any] = {"transport": "tcp", "transfer": transfer, "data_connections": 2, "transfer_batch_pages": 1}
    shown = {name: files(name) if secure else {} for name in BOTH}
    await workers.pair({**told, **shown["prefill-0"]}, {**told, **shown["decode-0"]}, program=("quiesce",))
    listens = workers.pid("decode-0" if transfer == "push" else "prefill-0")
    async with asyncio.timeout(60):
        while connections(listens) < 2:
            await workers.desk.ask(prompt_ids(30), *BOTH, max_tokens=6).answers(6)
    await workers.empty()
    assert connections(listens) == 2
