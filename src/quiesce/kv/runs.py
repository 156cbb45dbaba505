"""Page lists as runs: how a lease travels, and how a transfer finds its large copies."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from quiesce.errors import BadFrame

Pages = npt.NDArray[np.int32]
FEW = 16
"""So many pages are looked at one by one before numpy would be done with them."""

_PAIR = np.dtype("<u4")
_ONE_RUN = struct.Struct("<II")


class CopyRuns(msgspec.Struct, frozen=True, eq=False):
    """Copies of whole page runs: int64 arrays of equal length; run i is `pages[i]` pages from `source[i]` on."""

    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    pages: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pages)

    def __getitem__(self, which: slice) -> CopyRuns:
        return CopyRuns(self.source[which], self.target[which], self.pages[which])


def index_of(pages: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]] | slice:
    """What numpy finds `pages` by soonest: a slice when they are few and one run, else the pages themselves."""
    if 0 < len(pages) <= FEW:
        few = pages.tolist()
        if few[-1] - few[0] == len(few) - 1 and few == list(range(few[0], few[-1] + 1)):
            return slice(few[0], few[-1] + 1)
    return pages


def pack_runs(pages: npt.NDArray[np.integer[Any]]) -> bytes:
    """Pages in prompt order as little-endian uint32 pairs (first page, page count), as few as possible."""
    if not len(pages):
        return b""
    first = int(pages[0])
    if len(pages) <= FEW and pages.tolist() == list(range(first, first + len(pages))):
        return _ONE_RUN.pack(first, len(pages))
    return np.stack(runs_of(pages), axis=1).astype(_PAIR).tobytes()


def runs_of(pages: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First page and page count of each run, in the pages' order and as few as possible."""
    starts = _run_starts(np.diff(pages) == 1)[: len(pages)]
    return pages[starts].astype(np.int64), np.diff(starts, append=len(pages))


def unpack_runs(data: bytes, pool_pages: int) -> Pages:
    """The pages of a packed lease in prompt order, int32.

    Raises BadFrame for anything a peer must not send: a cut pair, an empty run, pages outside a pool of `pool_pages`
    pages, or a page named twice. Uses no more memory than `pool_pages` page numbers and the data itself.
    """
    if len(data) % 8:
        raise BadFrame(f"a lease of {len(data)} bytes is no list of (first page, page count) pairs")
    if len(data) == _ONE_RUN.size:  # most leases are
        start, n_pages = _ONE_RUN.unpack(data)
        if n_pages and start + n_pages <= pool_pages:
            return np.arange(start, start + n_pages, dtype=np.int32)
    pairs = np.frombuffer(data, _PAIR).reshape(-1, 2).astype(np.int64)
    first, counts = pairs[:, 0], pairs[:, 1]
    if np.any(counts == 0) or np.any(first + counts > pool_pages):
        raise BadFrame(f"a lease names an empty run or a page outside the pool of {pool_pages} pages")
    if counts.sum() > pool_pages:  # before anything is expanded
        raise BadFrame(f"a lease names more pages than the pool's {pool_pages}")
    pages = expand(first, counts)
    named = np.zeros(pool_pages, np.bool_)
    named[pages] = True
    if np.count_nonzero(named) < len(pages):
        raise BadFrame("a lease names a page twice")
    return pages


def expand(first: npt.NDArray[np.integer[Any]], counts: npt.NDArray[np.integer[Any]]) -> Pages:
    """The pages of runs, in the runs' order: int32."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    pages: Pages = (np.arange(total) + np.repeat(first - (ends - counts), counts)).astype(np.int32)
    return pages


def copy_runs(source: npt.NDArray[np.integer[Any]], target: npt.NDArray[np.integer[Any]]) -> CopyRuns:
    """Pair `source[i]` with `target[i]` and join neighbours that are contiguous on both sides."""
    if not len(source):
        nothing = np.zeros(0, np.int64)
        return CopyRuns(nothing, nothing, nothing)
    starts = _run_starts((np.diff(source) == 1) & (np.diff(target) == 1))
    counts = np.diff(starts, append=len(source))
    return CopyRuns(source[starts].astype(np.int64), target[starts].astype(np.int64), counts)


def _run_starts(joined: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Indices where runs start; `joined[i]` says that element i + 1 continues the run of element i."""
    return np.concatenate([[0], np.flatnonzero(~joined) + 1]).astype(np.int64)
