"""The prefix cache: a pool's pages that outlive their request, read-only, to begin the next one's context.

A page is in the cache by state CACHED, or has left the tree and is still read. Nobody ever writes it: whoever shares
it reads, and it is published as no destination. It becomes free only when nobody reads it (PROTOCOL rules 3 and 16).
"""

from __future__ import annotations

from collections.abc import Callable

from quiesce.errors import invariant
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.kv.prefix_tree import NO_PAGES, TOKEN_BYTES, PrefixTree
from quiesce.kv.runs import Pages


class Reader:
    """Somebody whose context begins with cached pages: `pages`, in order. None of them is freed until it leaves."""

    __slots__ = ("_cache", "pages")

    def __init__(self, cache: PrefixCache, pages: Pages) -> None:
        self._cache = cache
        self.pages = pages

    def leave(self) -> None:
        """Read them no more. Leaving again does nothing."""
        pages, self.pages = self.pages, NO_PAGES
        self._cache.left(pages)

    def condemn(self) -> None:
        """Its pages may not be what they were: nobody else may share them, nor what was computed on them."""
        self._cache.condemn(self.pages)

    def condemn_for_ever(self) -> None:
        """The same, and the pages stay out of circulation when everybody has left."""
        self._cache.condemn(self.pages, for_ever=True)


class PrefixCache:
    """One pool's cache. It gives the allocator unread pages back when that has too few. Owned by one thread."""

    def __init__(self, allocator: PageAllocator, page_size: int, *, on: bool = True) -> None:
        self._allocator = allocator
        self._tree = PrefixTree(allocator.pages, page_size)
        self._page_bytes = page_size * TOKEN_BYTES
        self._on = on
        self._flushes: list[Callable[[], None]] = []
        self._evicted_pages = 0
        allocator.spare = self

    # ------------------------------------------------------------ sharing

    def read(self, salt: str, tokens: bytes) -> Reader:
        """Share the longest cached prefix of a prompt (packed token ids) that leaves at least one token to compute."""
        if not self._on or self._flushes:
            return Reader(self, NO_PAGES)
        most_pages = (len(tokens) - TOKEN_BYTES) // self._page_bytes
        pages = self._tree.find(salt, tokens, most_pages)
        self._tree.enter(pages)
        return Reader(self, pages)

    def insert(self, reader: Reader, salt: str, tokens: bytes, pages: Pages) -> None:
        """Let a context in that goes on being read: `pages` hold `tokens`, the first of them are `reader`'s.

        `reader` reads the pages that were taken, too; the others remain the caller's. Whether this context may be
        cached at all is for a machine to say (rule 12), not for this module.
        """
        taken = self._take(reader, salt, tokens, pages, past_copies=False)
        if not len(taken):
            return
        end = len(reader.pages) + len(taken)
        invariant(bool((pages[len(reader.pages) : end] == taken).all()), "no_alias", "cached pages follow the reader's")
        self._tree.enter(taken)
        reader.pages = pages[:end]

    def deposit(self, reader: Reader, salt: str, tokens: bytes, pages: Pages) -> Pages:
        """Let a context in whose owner is done with it. The owner's pages that were not taken, for it to free.

        `reader` still reads the first of `pages`, and only those.
        """
        taken = self._take(reader, salt, tokens, pages, past_copies=True)
        own = pages[len(reader.pages) :]
        return own[~self._tree.contains(own)] if len(taken) else own

    def _take(self, reader: Reader, salt: str, tokens: bytes, pages: Pages, *, past_copies: bool) -> Pages:
        """What was computed on pages that left the tree has no place in it."""
        if not self._on or self._flushes or not self._tree.contains(reader.pages).all():
            return NO_PAGES
        full = pages[: len(tokens) // self._page_bytes]
        taken = self._tree.add(salt, tokens, full, past_copies=past_copies)
        self._allocator.mark(taken, PageState.CACHED, "")
        return taken

    def left(self, pages: Pages) -> None:
        """For `Reader`."""
        self._free(self._tree.leave(pages))

    # ------------------------------------------------------------ giving back

    @property
    def spare_pages(self) -> int:
        """Cached pages that nobody reads."""
        return self._tree.unread

    def give_back(self, n_pages: int) -> None:
        """Evict unread pages, the least recently used first. For the allocator, which has too few."""
        evicted = self._tree.evict(n_pages)
        self._evicted_pages += len(evicted)
        self._free(evicted)

    def take_evicted(self) -> int:
        """How many pages were evicted since this was asked last."""
        evicted, self._evicted_pages = self._evicted_pages, 0
        return evicted

    def condemn(self, pages: Pages, *, for_ever: bool = False) -> None:
        """Take a reader's pages, and all that was computed on them, out of the tree; its own are quarantined.

        They come back when all their readers have left; never, when `for_ever`.
        """
        if for_ever:
            self._tree.pin(pages)
        unread = self._tree.condemn(pages)
        self._allocator.mark(pages, PageState.QUARANTINED)
        self._free(unread)

    def flush(self, done: Callable[[], None]) -> None:
        """Forget everything and call `done` when the last cached page is free. Until then nothing is shared or let in.

        It does not wait for quarantine.
        """
        self._flushes.append(done)
        self._free(self._tree.clear())

    def _free(self, pages: Pages) -> None:
        self._allocator.release(pages)
        if self._flushes and not self._allocator.counts()[PageState.CACHED.name.lower()]:
            done, self._flushes = self._flushes, []
            for call in done:
                call()
