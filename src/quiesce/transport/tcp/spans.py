"""The memory of pages that one connection moves, as the kernel wants to be told of it: a vector of places.

The vector is made once for a write, by numpy, and each call is told where in it to begin. A view for every page and
call, which Python's own `recvmsg_into` and `sendmsg` want, took a tenth of the time of a write with pages of 64 KiB
and half of it with 4 KiB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.kv.runs import FEW
from quiesce.kv.storage import Pool

VECTOR_MOST = 512
"""Spans of one call; the kernel's limit is 1024."""
_ENTRY_BYTES = 16
_Counts = npt.NDArray[np.integer[Any]]


class Spans:
    """Spans of one memory in their order, and how much of them is through."""

    __slots__ = ("_address", "_at", "_base", "_ends", "_entries", "_memory", "_through_bytes", "left_bytes")

    def __init__(self, memory: memoryview, base: int, entries: array[int]) -> None:
        """`entries`: address and bytes of each span by turns, inside `memory`, which begins at address `base`."""
        self._memory = memory
        self._base = base
        self._entries = entries
        self._address, _ = entries.buffer_info()
        self._ends = list(accumulate(entries[1::2]))
        self._at = self._through_bytes = 0
        self.left_bytes = self._ends[-1] if self._ends else 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is through."""
        return not self._through_bytes

    def vector(self, most_bytes: int) -> tuple[int, int]:
        """Address and length of a `struct iovec` array of what is next: whole spans, or so much of one.

        Good until it is asked again or `advance` is called, and while this object lives. Something is left.
        """
        at, ends = self._at, self._ends
        last = at + VECTOR_MOST
        count = bisect_right(ends, self._through_bytes + most_bytes, at, last if last < len(ends) else len(ends)) - at
        if not count:
            self._entries[2 * at + 1] = most_bytes
            count = 1
        return self._address + at * _ENTRY_BYTES, count

    def views(self, most_bytes: int) -> list[memoryview]:
        """The same, for whoever cannot use addresses."""
        _, count = self.vector(most_bytes)
        entries = self._entries[2 * self._at : 2 * (self._at + count)].tolist()
        begins = [address - self._base for address in entries[::2]]
        return [self._memory[begin : begin + n] for begin, n in zip(begins, entries[1::2], strict=True)]

    def advance(self, n_bytes: int) -> None:
        """`n_bytes` of what `vector` or `views` told of are through."""
        self._through_bytes = through_bytes = self._through_bytes + n_bytes
        self.left_bytes -= n_bytes
        if self.left_bytes:
            ends, entries = self._ends, self._entries
            at = bisect_right(ends, through_bytes, self._at)
            entries[2 * at] += n_bytes if at == self._at else through_bytes - ends[at - 1]
            entries[2 * at + 1] = ends[at] - through_bytes
            self._at = at


class PageMemory:
    """Every page of a pool as bytes. The pool stays mapped until `release`, whoever closes it."""

    def __init__(self, pool: Pool) -> None:
        self._bytes = pool.page_view().reshape(-1).data
        self._base = pool.base_address
        self._page_bytes = pool.layout.page_bytes

    def spans(self, first: _Counts, pages: _Counts) -> Spans:
        """The memory of runs that lie inside the pool: run i is `pages[i]` pages from `first[i]` on."""
        entries = array("Q")
        if len(first) <= FEW:
            for page, n_pages in zip(first.tolist(), pages.tolist(), strict=True):
                entries.extend((self._base + page * self._page_bytes, n_pages * self._page_bytes))
        else:
            rows = np.stack([first, pages], axis=1).astype(np.uint64) * np.uint64(self._page_bytes)
            rows[:, 0] += np.uint64(self._base)
            entries.frombytes(rows.tobytes())
        return Spans(self._bytes, self._base, entries)

    def release(self) -> None:
        """No spans are used any more."""
        self._bytes.release()
