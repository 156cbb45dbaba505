"""Where the rows of one forward pass stand: their positions, their pages, and which of them are one sequence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quiesce.errors import invariant

SPAN_ROWS = 64
"""Rows of a chunk that one thread attends at a time."""

Ints = npt.NDArray[np.int64]


class Step(NamedTuple):
    """positions, page_of_row, place_of_row: int64 (rows,). spans: int64 (n, 4), see `attend`. page_table: int32."""

    positions: Ints
    page_of_row: Ints
    place_of_row: Ints
    spans: Ints
    page_table: npt.NDArray[np.int32]

    @property
    def rows(self) -> int:
        return self.positions.size

    def last_row(self) -> Step:
        """The same for the last row alone."""
        span = np.array([[0, 1, self.positions[-1], self.spans[-1, 3]]], np.int64)
        return Step(self.positions[-1:], self.page_of_row[-1:], self.place_of_row[-1:], span, self.page_table)


def chunk_step(rows: int, start: int, pages: npt.NDArray[np.int32], page_size: int, pool_pages: int) -> Step:
    """`rows` consecutive positions of one sequence from `start` on; `pages` are all of its pages."""
    table = np.ascontiguousarray(pages, np.int32).reshape(1, -1)
    _check(table, start + rows - 1, page_size, pool_pages)
    positions = np.arange(start, start + rows, dtype=np.int64)
    first = np.arange(0, rows, SPAN_ROWS, dtype=np.int64)
    spans = np.stack([first, np.minimum(first + SPAN_ROWS, rows), first + start, np.zeros_like(first)], axis=1)
    page_of_row = table[0, positions // page_size].astype(np.int64)
    return Step(positions, page_of_row, positions % page_size, np.ascontiguousarray(spans), table)


def batch_step(
    positions: npt.NDArray[np.int32], page_table: npt.NDArray[np.int32], page_size: int, pool_pages: int
) -> Step:
    """One row of each sequence; `page_table` is (rows, most pages), padded with any valid page."""
    table = np.ascontiguousarray(page_table, np.int32)
    at = np.ascontiguousarray(positions, np.int64)
    invariant(table.ndim == 2 and table.shape[0] == at.size, "batch", f"{table.shape} pages for {at.size} rows")
    _check(table, int(at.max(initial=0)), page_size, pool_pages)
    row = np.arange(at.size, dtype=np.int64)
    spans = np.stack([row, row + 1, at, row], axis=1)
    page_of_row = table[row, at // page_size].astype(np.int64)
    return Step(at, page_of_row, at % page_size, np.ascontiguousarray(spans), table)


def _check(table: npt.NDArray[np.int32], last_position: int, page_size: int, pool_pages: int) -> None:
    """Kernels check no bounds, so this does."""
    covered = table.shape[1] * page_size
    invariant(last_position < covered, "pages cover positions", f"position {last_position}, pages for {covered}")
    invariant(int(table.min()) >= 0 and int(table.max()) < pool_pages, "pages are in the pool")
