"""A pool as a map of cells: each cell is one page, or several of which the most telling state is shown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from quiesce.protocol.dispatch import PageRange, WorkerSnapshot

STATES = ("free", "cached", "used", "reserved", "held", "quarantined")
"""From the quietest to the most telling."""

MOST_CELLS = 2048
MOST_OWNERS = 256


class PageMap(msgspec.Struct, frozen=True):
    """`runs` alternates a state's number in `STATES` and how many cells in a row show it.

    `owners` are runs of pages that somebody has: first, last, state's number, owner; the most telling `MOST_OWNERS`.
    """

    pages: int
    pages_per_cell: int
    runs: list[int]
    owners: list[tuple[int, int, int, str]]


def page_map(snapshot: WorkerSnapshot) -> PageMap:
    """The map of one worker's pool."""
    pages = sum(snapshot.pages.values())
    per_cell = max(1, -(-pages // MOST_CELLS))
    return PageMap(pages, per_cell, _runs(_cells(snapshot.ranges, pages, per_cell)), _owners(snapshot.ranges))


def _cells(ranges: Sequence[PageRange], pages: int, per_cell: int) -> NDArray[np.int8]:
    """The number of the most telling state of each cell."""
    states = np.zeros(pages, np.int8)
    for each in ranges:
        states[each.first : each.last + 1] = number(each.state)
    if not pages:
        return states
    return np.asarray(np.maximum.reduceat(states, np.arange(0, pages, per_cell)), np.int8)


def _runs(cells: NDArray[np.int8]) -> list[int]:
    starts = np.flatnonzero(np.diff(cells, prepend=np.int8(-1)))
    lengths = np.diff(starts, append=len(cells))
    return np.stack([cells[starts], lengths], axis=1).ravel().tolist()


def _owners(ranges: Sequence[PageRange]) -> list[tuple[int, int, int, str]]:
    owned = [(each.first, each.last, number(each.state), each.owner) for each in ranges if each.state != "free"]
    return sorted(sorted(owned, key=lambda each: -each[2])[:MOST_OWNERS])


def number(state: str) -> int:
    """A state that this router does not know is shown as used."""
    return STATES.index(state if state in STATES else "used")
