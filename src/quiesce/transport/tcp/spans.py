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

from quiesce.errors import invariant
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

        Good until it is asked again or `advance` is called, and while this object lives. IndexError: nothing is left.
        """
        at, ends = self._at, self._ends
        last = at + VECTOR_MOST
        count = bisect_right(ends, self._through_bytes + most_bytes, at, last if last < len(ends) else len(ends)) - at
        # the entry may be as short as an earlier call wanted it; and behind the last one this raises IndexError
        self._entries[2 * at + 1] = ends[at] - self._through_bytes if count else most_bytes
        return self._address + at * _ENTRY_BYTES, count or 1

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
        was_at, self._at = self._at, bisect_right(self._ends, through_bytes, self._at)
        if self.left_bytes:
            at = self._at
            self._entries[2 * at] += n_bytes if at == was_at else through_bytes - self._ends[at - 1]


class PageMemory:
    """Every page of a pool as bytes. The pool stays mapped until `release`, whoever closes it."""

    def __init__(self, pool: Pool) -> None:
        every = pool.page_view().reshape(-1)
        self._bytes = every.data
        self._base = int(every.ctypes.data)
        self._page_bytes = pool.layout.page_bytes
        self._pages = len(every) // self._page_bytes  # none of a pool that was closed

    def spans(self, first: _Counts, pages: _Counts) -> Spans:
        """The memory of runs that lie inside the pool: run i is `pages[i]` pages from `first[i]` on.

        Who asks has checked them. Nobody else does after us: the kernel takes what lies at an address, whosever it is.
        """
        entries = array("Q")
        if len(first) <= FEW:
            for page, n_pages in zip(first.tolist(), pages.tolist(), strict=True):
                self._require(0 <= page < page + n_pages <= self._pages)
                entries.extend((self._base + page * self._page_bytes, n_pages * self._page_bytes))
        else:
            self._require(bool(first.min() >= 0 < pages.min() and (first + pages).max() <= self._pages))
            rows = np.stack([first, pages], axis=1).astype(np.uint64) * np.uint64(self._page_bytes)
            rows[:, 0] += np.uint64(self._base)
            entries.frombytes(rows.tobytes())
        return Spans(self._bytes, self._base, entries)

    def _require(self, inside: bool) -> None:
        invariant(inside, "spans_inside_the_pool", f"of {self._pages} pages")

    def release(self) -> None:
        """No spans are used any more."""
        self._bytes.release()
