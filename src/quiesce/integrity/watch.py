"""The canary of every decode step: do all pages that the batch reads still bear their own tags?"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from quiesce.errors import invariant
from quiesce.kv.storage import Pool

K = TypeVar("K", bound=Hashable)
AnyPages = npt.NDArray[np.integer[Any]]


class TagWatch(Generic[K]):
    """Who reads which pages under which tags, kept as flat arrays so that `check` is one vectorised comparison.

    `add` and `extend` append (amortised constant time per page), `remove` closes the gap. Owned by one thread.
    """

    def __init__(self) -> None:
        self._count = 0
        self._pages = np.zeros(64, np.int32)
        self._tags = np.zeros(64, np.uint64)
        self._serials = np.zeros(64, np.int64)
        self._serial_of: dict[K, int] = {}
        self._key_of: dict[int, K] = {}
        self._next_serial = 0

    def __len__(self) -> int:
        """Watched pages."""
        return self._count

    def __contains__(self, key: K) -> bool:
        return key in self._serial_of

    def add(self, key: K, pages: AnyPages, tags: npt.NDArray[np.uint64] | int) -> None:
        """Watch `pages` for a new `key` (invariant: not watched yet); `tags` is one for each page, or one for all."""
        invariant(key not in self._serial_of, "read_own", f"{key} is watched already")
        serial = self._next_serial
        self._next_serial += 1
        self._serial_of[key] = serial
        self._key_of[serial] = key
        self._append(pages, tags, serial)

    def extend(self, key: K, page: int | AnyPages, tag: int) -> None:
        """`key` reads one page (or several) more. Invariant: `key` is watched."""
        invariant(key in self._serial_of, "read_own", f"{key} is not watched")
        self._append(np.atleast_1d(np.asarray(page)), tag, self._serial_of[key])

    def remove(self, key: K) -> None:
        """Stop watching `key`; nothing happens if it is not watched."""
        serial = self._serial_of.pop(key, None)
        if serial is None:
            return
        del self._key_of[serial]
        kept = np.flatnonzero(self._serials[: self._count] != serial)
        for column in (self._pages, self._tags, self._serials):
            column[: len(kept)] = column[kept]
        self._count = len(kept)

    def check(self, pool: Pool) -> list[K]:
        """The keys, in the order of their `add`, that have a page whose tag differs in any layer group: normally []."""
        expected = self._tags[: self._count, None]
        differs = (pool.tags[self._pages[: self._count]] != expected).any(axis=1)
        if not differs.any():
            return []
        return [self._key_of[serial] for serial in np.unique(self._serials[: self._count][differs]).tolist()]

    def _append(self, pages: AnyPages, tags: npt.NDArray[np.uint64] | int, serial: int) -> None:
        end = self._count + len(pages)
        if end > len(self._pages):
            self._grow(max(end, 2 * len(self._pages)))
        self._pages[self._count : end] = pages
        self._tags[self._count : end] = tags
        self._serials[self._count : end] = serial
        self._count = end

    def _grow(self, size: int) -> None:
        self._pages = np.resize(self._pages, size)
        self._tags = np.resize(self._tags, size)
        self._serials = np.resize(self._serials, size)
