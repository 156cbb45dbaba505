"""The memory of one rank: what lies in its pages, who may write and who reads them, and the production allocator and
prefix cache that decide it; beside them, when audited, their references.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np

from quiesce.ids import PageTag
from quiesce.kv import prefix_reference, reference
from quiesce.kv.allocator import Allocation, AnyPages, PageAllocator, PageState
from quiesce.kv.prefix_cache import PrefixCache
from quiesce.kv.prefix_tree import PrefixTree
from quiesce.kv.runs import Pages
from quiesce.lab.swarm.checkers import Cell, Checkers, Twins

EMPTY: Cell = (0, 0)
APART = 1 << 32
EVERYTHING_EVERY = 64
"""Audited pools are compared page by page after so many operations; what an operation touches, after each."""


class TwinAllocator(PageAllocator):
    """The array allocator, compared with its reference."""

    def __init__(self, pages: int, first_tag: PageTag, twins: Twins) -> None:
        super().__init__(pages, first_tag)
        self._twins = twins
        self._pure = reference.fresh(pages, first_tag)
        self._operations = 0

    def allocate(self, n_pages: int, owner: str, state: PageState) -> Allocation:
        taken = super().allocate(n_pages, owner, state)
        tag = self._pure.next_tag
        self._pure, pages = reference.allocate(self._pure, n_pages, owner, state)
        self._twins.equal((tuple(taken.pages.tolist()), taken.tag), (pages, tag), "allocate")
        return taken

    def mark(self, pages: AnyPages, state: PageState, owner: str | None = None) -> None:
        super().mark(pages, state, owner)
        self._pure = reference.mark(self._pure, frozenset(pages.tolist()), state, owner)
        self._compare()

    def release(self, pages: AnyPages) -> None:
        super().release(pages)
        self._pure = reference.release(self._pure, frozenset(pages.tolist()))
        self._compare()

    def _compare(self) -> None:
        self._operations += 1
        if self._operations % EVERYTHING_EVERY:
            return
        names = [(each.state.name.lower(), each.owner) for each in self._pure.pages]
        found = [(run.state, run.owner) for run in self.ranges() for _ in range(run.first, run.last + 1)]
        self._twins.equal(found, names, "states and owners")
        self._twins.equal(self.free_pages, len(reference.free_pages(self._pure)), "free pages")
        tags = self.tag_of(np.arange(self.pages)).tolist()
        self._twins.equal(tags, [each.tag for each in self._pure.pages], "tags")


class TwinTree(PrefixTree):
    """The prefix tree, compared with its reference."""

    def __init__(self, pages: int, page_size: int, twins: Twins) -> None:
        super().__init__(pages, page_size)
        self._page_bytes = page_size * 4
        self._twins = twins
        self._pure = prefix_reference.ReferenceTree()

    def find(self, salt: str, tokens: bytes, most_pages: int) -> Pages:
        found = super().find(salt, tokens, most_pages)
        paths = prefix_reference.page_paths(salt, tokens, self._page_bytes)[:most_pages]
        self._twins.equal(tuple(found.tolist()), prefix_reference.find(self._pure, paths), "find")
        return found

    def add(self, salt: str, tokens: bytes, pages: Pages, *, past_copies: bool) -> Pages:
        taken = super().add(salt, tokens, pages, past_copies=past_copies)
        paths = prefix_reference.page_paths(salt, tokens, self._page_bytes)[: len(pages)]
        given = tuple(pages.tolist())
        self._pure, expected = prefix_reference.add(self._pure, paths, given, past_copies=past_copies)
        self._twins.equal(tuple(taken.tolist()), expected, "add")
        return taken

    def enter(self, pages: Pages) -> None:
        super().enter(pages)
        self._pure = prefix_reference.enter(self._pure, tuple(pages.tolist()))

    def leave(self, pages: Pages) -> Pages:
        left = super().leave(pages)
        self._pure, expected = prefix_reference.leave(self._pure, tuple(pages.tolist()))
        self._twins.equal(tuple(left.tolist()), expected, "leave")
        self._twins.equal(self.unread, prefix_reference.unread(self._pure), "unread pages")
        return left

    def evict(self, most_pages: int) -> Pages:
        evicted = super().evict(most_pages)
        self._pure, expected = prefix_reference.evict(self._pure, most_pages)
        self._twins.equal(tuple(evicted.tolist()), expected, "evict")
        return evicted

    def condemn(self, pages: Pages) -> Pages:
        unread = super().condemn(pages)
        self._pure, expected = prefix_reference.condemn(self._pure, tuple(pages.tolist()))
        self._twins.equal(tuple(unread.tolist()), expected, "condemn")
        return unread


class Memory:
    """`cells[slice][page]` is what lies there: each prefill rank writes a slice of its own of every page.

    `writers[page]` is the attempt that may have it written, 0 for none; `readers[page]` counts whoever reads it. `held`
    are attempts whose request is over. It is `gone` with the life whose it was; only mutants give it an `heir`. What is
    `over` nobody reads, nor ever will: a segment whose hand-off has ended.
    `base` makes attempts and tags of one life unlike those of another.
    """

    def __init__(
        self, where: str, life: int, pages: int, page_size: int, slices: int, cached: bool, audit: Checkers | None
    ) -> None:
        self.where = where
        self.base = life * APART
        self.heir: Memory | None = None
        first = PageTag(self.base + 1)
        self.allocator = PageAllocator(pages, first) if audit is None else TwinAllocator(pages, first, audit.twins)
        self.prefixes = PrefixCache(self.allocator, page_size, on=cached)
        if audit is not None:
            self.prefixes._tree = TwinTree(pages, page_size, audit.twins)
        self.cells: list[list[Cell]] = [[EMPTY] * pages for _ in range(slices)]
        self.writers = [0] * pages
        self.readers = [0] * pages
        self.page_size = page_size
        self.held: set[int] = set()
        self.gone = self.over = False

    def put(self, pages: list[int], cells: list[Cell]) -> None:
        """The owner of this memory writes whole pages itself."""
        for slice_ in self.cells:
            for page, cell in zip(pages, cells, strict=True):
                slice_[page] = cell

    def read_by(self, pages: list[int], count: int) -> None:
        """So many readers more (or fewer)."""
        readers = self.readers
        for page in pages:
            readers[page] += count

    def lease(self, pages: list[int], attempt: int) -> None:
        """An attempt may have them written."""
        for page in pages:
            self.writers[page] = self.base + attempt

    def close(self, pages: list[int]) -> None:
        """Nobody may any more."""
        for page in pages:
            self.writers[page] = 0

    def is_held(self, attempt: int) -> bool:
        return attempt in self.held and not self.gone

    def found(self, pages: list[int]) -> list[Cell]:
        """What lies in these pages; slices that differ are told apart by a tag of -1."""
        first = [self.cells[0][page] for page in pages]
        for slice_ in self.cells[1:]:
            first = [cell if cell == slice_[page] else (-1, cell[1]) for page, cell in zip(pages, first, strict=True)]
        return first


def reader_of(pages: list[int]) -> Any:
    """Reads these pages (at least one) of a list, fast: one value, or a tuple."""
    return itemgetter(*pages)
