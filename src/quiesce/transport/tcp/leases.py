"""What may be written now: the leases that decode armed, looked up by page tag before any byte is placed.

A revocation is a fence (PROTOCOL section 3): `revoke` returns once no placement of that tag is in progress, and none
begins afterwards. It costs other attempts nothing.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.errors import invariant
from quiesce.ids import PageTag
from quiesce.kv.storage import Pool
from quiesce.transport.refusals import RefusedTransfer


class Armed:
    """One armed lease. Whoever places a piece of it holds `lock` and has seen `revoked` false under it."""

    __slots__ = ("lock", "pages", "revoked", "slot", "tag")

    def __init__(self, tag: PageTag, pages: npt.NDArray[np.integer[Any]], slot: int) -> None:
        self.tag = tag
        self.pages = pages
        self.slot = slot
        self.revoked = False
        self.lock = threading.Lock()

    def seal(self, pool: Pool, pages: npt.NDArray[np.integer[Any]], words: tuple[int, ...]) -> None:
        """Every byte of `pages` is placed: their tags, then the metadata, its word 0 last. Called under `lock`."""
        pool.stamp(pages, self.tag)
        if words:
            row = pool.metadata[self.slot]
            row[1:] = np.array(words[1:], np.uint64)
            row[0] = np.uint64(words[0])


class Leases:
    """The armed leases of one pool. `arm` and `revoke` are called from one thread, `find` from any."""

    def __init__(self, pages: int) -> None:
        self._tags: npt.NDArray[np.uint64] = np.zeros(pages, np.uint64)  # by page; 0: nobody may write it
        self._armed: dict[int, Armed] = {}
        self._lock = threading.Lock()

    def arm(self, tag: PageTag, pages: npt.NDArray[np.integer[Any]], slot: int) -> None:
        """Permit writes that bear `tag` into `pages` and `slot`. The pages are armed for nobody else (no_alias)."""
        with self._lock:
            invariant(tag != 0 and tag not in self._armed and not self._tags[pages].any(), "no_alias", f"tag {tag}")
            self._tags[pages] = np.uint64(tag)
            self._armed[tag] = Armed(tag, pages, slot)

    def revoke(self, tag: PageTag) -> None:
        """End the permission. Waits for at most one piece that is being placed. Idempotent."""
        with self._lock:
            armed = self._armed.pop(tag, None)
            if armed is None:
                return
            self._tags[armed.pages] = 0
        with armed.lock:
            armed.revoked = True

    def find(self, tag: int, pages: npt.NDArray[np.integer[Any]], slot: int | None) -> Armed | str:
        """The lease that permits such a write, or a `RefusedTransfer`. `pages` lie inside the pool."""
        with self._lock:
            armed = self._armed.get(tag)
            if armed is None:
                return RefusedTransfer.NOT_LEASED
            if not (self._tags[pages] == np.uint64(tag)).all():
                return RefusedTransfer.FOREIGN_PAGE
        return armed if slot in (None, armed.slot) else RefusedTransfer.FOREIGN_SLOT
