"""Who has which page: arrays for a pool of any size. `reference.py` says the same in a page of pure code."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from quiesce.errors import OutOfPages, invariant
from quiesce.ids import PageTag
from quiesce.kv.owners import OwnerTable
from quiesce.kv.runs import FEW, Pages, expand, index_of
from quiesce.kv.states import PageState as PageState
from quiesce.protocol.dispatch import PageRange

AnyPages = npt.NDArray[np.integer[Any]]

_FREE, _QUARANTINED = int(PageState.FREE), int(PageState.QUARANTINED)  # an enum's members are slow to look up


class Allocation(msgspec.Struct, frozen=True, eq=False):
    """Pages in prompt order (int32) and the tag that marks this allocation of them and no other."""

    tag: PageTag
    pages: Pages


class Spare(Protocol):
    """Pages that somebody keeps for as long as nobody needs them: a prefix cache."""

    @property
    def spare_pages(self) -> int: ...

    def give_back(self, n_pages: int) -> None:
        """Release so many of them."""


class PageAllocator:
    """States, owners and tags of the pages of one pool. Owned by one thread; takes no locks.

    Every operation is a fixed number of passes in C; only `FEW` pages are looped over in Python. Contiguous pages are
    preferred: the lowest free run that holds everything, else the fewest (so the longest) free runs. When too few are
    free, `spare` gives some back.
    """

    def __init__(self, pages: int, first_tag: PageTag) -> None:
        """All `pages` are free; the first allocation bears `first_tag` (not 0), each later one the next number."""
        invariant(pages > 0 and first_tag > 0, "page_tags", f"{pages} pages, first tag {first_tag}")
        self.pages = pages
        self.spare: Spare | None = None
        self._next_tag = int(first_tag)
        self._states = bytearray(pages)
        self._state = np.frombuffer(self._states, np.uint8)  # the same memory
        self._tag = np.zeros(pages, np.uint64)
        self._seen = np.zeros(pages, np.bool_)  # scratch, all False between calls
        self._owners = OwnerTable(pages)
        self._tally = [0] * len(PageState)
        self._tally[_FREE] = pages

    def allocate(self, n_pages: int, owner: str, state: PageState) -> Allocation:
        """Take `n_pages` pages for `owner`. Raises OutOfPages, and then nothing is allocated nor given back."""
        invariant(n_pages >= 0 and state != _FREE, "no_alias", "pages are allocated as free, or less than none")
        if n_pages > self._tally[_FREE]:
            self._make_room(n_pages)
        pages = self._choose(n_pages)
        invariant(len(pages) == n_pages and self._are_free(pages), "no_alias", "an allocated page is not free")
        tag = PageTag(self._next_tag)
        self._next_tag += 1
        self._change(pages, state)
        self._tag[index_of(pages)] = tag
        self._owners.give(pages, owner)
        return Allocation(tag, pages)

    def _make_room(self, n_pages: int) -> None:
        """Have `spare` give back what is missing. Raises OutOfPages when it has too few, and then it gives nothing."""
        if n_pages > self.available_pages or self.spare is None:
            raise OutOfPages(f"{n_pages} pages are needed and {self.available_pages} of {self.pages} are available")
        self.spare.give_back(n_pages - self.free_pages)

    def mark(self, pages: AnyPages, state: PageState, owner: str | None = None) -> None:
        """Change the state, and the owner unless None, of pages that are not free. Their tags stay."""
        invariant(state != _FREE, "once", "pages become free by release() only")
        if not len(pages):
            return
        self._require_taken(pages, "no_alias")
        self._change(pages, state)
        if owner is not None:
            self._owners.take(pages)
            self._owners.give(pages, owner)

    def release(self, pages: AnyPages) -> None:
        """Free pages, each exactly once: InvariantBroken `once` for a free page or one named twice; nothing changed."""
        if not len(pages):
            return
        self._require_taken(pages, "once")
        self._owners.take(pages)
        self._change(pages, _FREE)
        self._tag[index_of(pages)] = 0

    @property
    def free_pages(self) -> int:
        return self._tally[_FREE]

    @property
    def available_pages(self) -> int:
        """Pages that `allocate` can give now: free ones, and those that `spare` would give back."""
        free, spare = self._tally[_FREE], self.spare
        return free if spare is None else free + spare.spare_pages

    @property
    def usable_pages(self) -> int:
        """Pages that are free or can become free by themselves: all but those in quarantine."""
        return self.pages - self._tally[_QUARANTINED]

    def counts(self) -> dict[str, int]:
        """Pages per state, every state present, by its name in lower case."""
        return {state.name.lower(): self._tally[state] for state in PageState}

    def ranges(self) -> tuple[PageRange, ...]:
        """The pool as maximal runs of one (state, owner), in page order."""
        codes = self._owners.codes
        changed = (self._state[1:] != self._state[:-1]) | (codes[1:] != codes[:-1])
        first = np.concatenate([[0], np.flatnonzero(changed) + 1])
        last = np.append(first[1:], self.pages) - 1
        names = [state.name.lower() for state in PageState]
        rows = zip(first.tolist(), last.tolist(), self._state[first].tolist(), codes[first].tolist(), strict=True)
        return tuple(PageRange(low, high, names[state], self._owners.name(code)) for low, high, state, code in rows)

    def tag_of(self, pages: AnyPages) -> npt.NDArray[np.uint64]:
        """The tag of each page's allocation, 0 for a free page."""
        self._require_in_pool(pages)
        return self._tag[pages]

    def _change(self, pages: AnyPages, state: int) -> None:
        state = int(state)
        tally, states = self._tally, self._states
        if len(pages) <= FEW:
            for page in pages.tolist():
                tally[states[page]] -= 1
                states[page] = state
        else:
            for before, n_pages in enumerate(np.bincount(self._state[pages]).tolist()):
                tally[before] -= n_pages
            self._state[pages] = state
        tally[state] += len(pages)

    def _choose(self, n_pages: int) -> Pages:
        start = self._states.find(bytes(n_pages))  # the lowest place of so many zeros: free pages
        if start >= 0:
            return np.arange(start, start + n_pages, dtype=np.int32)
        first, counts = self._free_runs()
        longest = np.argsort(-counts, kind="stable")
        total = np.cumsum(counts[longest])
        n_runs = int(np.searchsorted(total, n_pages)) + 1
        counts[longest[n_runs - 1]] -= total[n_runs - 1] - n_pages  # the shortest run taken may be taken in part
        taken = np.sort(longest[:n_runs])
        return expand(first[taken], counts[taken])

    def _free_runs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        edges = np.flatnonzero(np.diff(self._state == _FREE, prepend=False, append=False))
        return edges[::2], edges[1::2] - edges[::2]

    def _require_taken(self, pages: AnyPages, name: str) -> None:
        if len(pages) <= FEW and self._are_taken(pages.tolist()):
            return
        self._require_in_pool(pages)
        free = np.count_nonzero(self._state[pages] == _FREE)
        invariant(free == 0, name, f"{free} of {len(pages)} pages are free already")
        self._seen[pages] = True
        distinct = np.count_nonzero(self._seen)
        self._seen[pages] = False
        invariant(distinct == len(pages), name, f"{len(pages) - distinct} pages are named twice")

    def _are_free(self, pages: Pages) -> bool:
        if len(pages) > FEW:
            return not np.count_nonzero(self._state[pages])
        states = self._states
        return not any(states[page] for page in pages.tolist())

    def _are_taken(self, few: list[int]) -> bool:
        """Whether they lie in the pool, none is free, and none is named twice."""
        n_pages, states = self.pages, self._states
        return len(set(few)) == len(few) and all(0 <= page < n_pages and states[page] for page in few)

    def _require_in_pool(self, pages: AnyPages) -> None:
        inside = len(pages) == 0 or (pages.min() >= 0 and pages.max() < self.pages)
        invariant(bool(inside), "page_bounds", f"a page lies outside the pool of {self.pages} pages")
