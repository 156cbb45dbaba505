"""Staged landing: what lands late or torn lands in memory that nobody reads, even when a clock frees pages."""

from __future__ import annotations

from typing import Any

from quiesce.lab.explorer.config import config
from quiesce.lab.explorer.search import explore

CARELESS: dict[str, Any] = {"abort": 1, "clock": 1, "torn": 1, "unsafe": True, "wild": False}
"""A clock frees what is held; a write that may hit others is no fault in itself, only what comes of it is."""


def test_written_directly_a_late_write_is_read_by_somebody_else() -> None:
    found = explore(config(**CARELESS))
    assert found.violation.startswith("read_own")
    assert str(found.trace[-1]).startswith(("land", "tear"))


def test_staged_nobody_reads_it() -> None:
    found = explore(config(**CARELESS, staged=True))
    assert not found.violation, found.trace
