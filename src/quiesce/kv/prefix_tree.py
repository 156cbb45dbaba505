"""Full pages by what they were computed from: a salt, the tokens before them and their own. Compared by content.

`prefix_reference.py` says the same purely.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quiesce.errors import invariant
from quiesce.kv.runs import Pages

TOKEN_BYTES = 4
"""Token ids come packed, as little-endian uint32."""

NO_PAGES: Pages = np.zeros(0, np.int32)
NO_PAGES.flags.writeable = False

Key = tuple[int | str, bytes]
"""The page before (for first pages: the salt) and the page's own token ids, whole."""

_OUTSIDE = -1


class PrefixTree:
    """Which pages of a pool hold which prefix, who reads them, and which were used least recently.

    A dict finds a page by its key and compares the key itself, salt and token ids, so equal hashes prove nothing here.
    Its parent is named by page number, which stays true because a page leaves the tree before its parent does.

    Readers hold whole paths from the root, and every use touches one. So what is below an unread page is unread, and
    was used no later: unread pages in the order (last use, deepest first) are the leaves that LRU takes one by one.

    Loops go over pages, never over tokens, and look only into dicts; the rest is numpy.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        self._page_bytes = page_size * TOKEN_BYTES
        self._index: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._readers = np.zeros(pages, np.int32)
        self._depth = np.full(pages, _OUTSIDE, np.int32)
        self._used = np.zeros(pages, np.int64)
        self._clock = 0
        self._unread = 0
        self._queue: Pages = NO_PAGES  # unread pages in the order of their eviction, and when each was used last then
        self._queue_used = np.zeros(0, np.int64)

    def __len__(self) -> int:
        """Pages in the tree."""
        return len(self._keys)

    @property
    def unread(self) -> int:
        """Pages in the tree that nobody reads: what `evict` can give."""
        return self._unread

    # ------------------------------------------------------------ finding and adding

    def find(self, salt: str, tokens: bytes, most_pages: int) -> Pages:
        """The longest known prefix of `tokens` in whole pages, at most `most_pages`: its pages, in order."""
        index, size = self._index, self._page_bytes
        parent: int | str = salt
        found = []
        for start in range(0, min(most_pages, len(tokens) // size) * size, size):
            page = index.get((parent, tokens[start : start + size]))
            if page is None:
                break
            found.append(page)
            parent = page
        return np.array(found, np.int32)

    def add(self, salt: str, tokens: bytes, pages: Pages, *, past_copies: bool) -> Pages:
        """Let `pages` (whole pages of `tokens`, in order, held by the caller) into the tree; those that it took.

        Where it has a page for the same prefix already it keeps that one. It stops there, so that what it took
        follows on the caller's own pages, or goes on behind it when `past_copies`.
        """
        size, index, keys = self._page_bytes, self._index, self._keys
        invariant(len(pages) * size <= len(tokens), "full_pages", f"{len(pages)} pages for {len(tokens)} bytes of ids")
        path: list[int] = []
        new: list[int] = []
        parent: int | str = salt
        for depth, page in enumerate(pages.tolist()):
            key = (parent, tokens[depth * size : (depth + 1) * size])
            parent = index.setdefault(key, page)
            if parent != page and not past_copies:
                break
            if parent == page and page not in keys:
                keys[page] = key
                new.append(depth)
            path.append(parent)
        self._settle(pages[new], new)
        self._touch(np.array(path, np.int32))
        return pages[new]

    def _settle(self, new: Pages, depths: list[int]) -> None:
        unread = bool((self._readers[new] == 0).all())
        once = len(self._index) == len(self._keys)
        invariant(unread and once, "no_alias", "a page is cached that somebody reads, or for two prefixes")
        self._depth[new] = depths
        self._unread += len(new)

    def contains(self, pages: Pages) -> npt.NDArray[np.bool_]:
        """Which of `pages` are in the tree."""
        inside: npt.NDArray[np.bool_] = self._depth[pages] != _OUTSIDE
        return inside

    # ------------------------------------------------------------ readers

    def enter(self, pages: Pages) -> None:
        """One reader more for each page of a path in the tree (or of the rest of one that it holds already)."""
        if not len(pages):
            return
        invariant(bool(self.contains(pages).all()), "no_poison", "a page outside the tree is shared")
        self._unread -= int(np.count_nonzero(self._readers[pages] == 0))
        self._readers[pages] += 1
        self._touch(pages)

    def pin(self, pages: Pages) -> None:
        """A reader that never leaves joins one that reads `pages`, in the tree or not."""
        invariant(bool((self._readers[pages] > 0).all()), "once", "a page that nobody reads is pinned")
        self._readers[pages] += 1

    def leave(self, pages: Pages) -> Pages:
        """One reader less. Returns the pages that left the tree earlier and that nobody reads any more."""
        if not len(pages):
            return NO_PAGES
        invariant(bool((self._readers[pages] > 0).all()), "once", "a reader left twice")
        self._readers[pages] -= 1
        inside = self.contains(pages)
        unread = self._readers[pages] == 0
        self._unread += int(np.count_nonzero(unread & inside))
        self._touch(pages[inside])
        abandoned: Pages = pages[unread & ~inside]
        return abandoned

    def _touch(self, pages: Pages) -> None:
        self._clock += 1
        self._used[pages] = self._clock

    # ------------------------------------------------------------ leaving the tree

    def evict(self, most_pages: int) -> Pages:
        """Take out up to `most_pages` pages that nobody reads, leaf by leaf, the least recently used first."""
        evicted: list[Pages] = []
        missing = min(most_pages, self._unread)
        while missing:
            if not len(self._queue):
                self._line_up()
            head, used = self._queue[:missing], self._queue_used[:missing]
            self._queue, self._queue_used = self._queue[missing:], self._queue_used[missing:]
            still = (self._readers[head] == 0) & (self._depth[head] != _OUTSIDE) & (self._used[head] == used)
            evicted.append(head[still])
            missing -= len(evicted[-1])
            self._remove(evicted[-1])
            self._unread -= len(evicted[-1])
        return np.concatenate(evicted) if evicted else NO_PAGES

    def _line_up(self) -> None:
        """Whoever is used again while it waits in the queue bears a later time, and is passed over."""
        unread = np.flatnonzero((self._readers == 0) & (self._depth != _OUTSIDE)).astype(np.int32)
        order = unread[np.lexsort((-self._depth[unread], self._used[unread]))]
        self._queue, self._queue_used = order, self._used[order]

    def condemn(self, pages: Pages) -> Pages:
        """Take `pages` and all that was computed on them out of the tree. Returns those that nobody reads."""
        doomed = set(pages[self.contains(pages)].tolist())
        shallowest = int(self._depth[list(doomed)].min()) if doomed else 0
        below = np.flatnonzero(self._depth > shallowest)
        for page in below[np.argsort(self._depth[below], kind="stable")].tolist():  # parents before children
            if self._keys[page][0] in doomed:
                doomed.add(page)
        out = np.array(sorted(doomed), np.int32)
        unread: Pages = out[self._readers[out] == 0]
        self._unread -= len(unread)
        self._remove(out)
        return unread

    def clear(self) -> Pages:
        """Take everything out. Returns the pages that nobody reads."""
        return self.condemn(np.flatnonzero(self._depth == 0).astype(np.int32))

    def _remove(self, pages: Pages) -> None:
        for page in pages.tolist():
            del self._index[self._keys.pop(page)]
        self._depth[pages] = _OUTSIDE
