"""What may be read now: the windows that prefill lends, looked up by tag before any byte leaves.

A revocation is a fact at the source (PROTOCOL section 6): `revoke` returns once no byte of the window is being taken,
and none is taken afterwards. What the kernel took before is a copy of what the pages held then.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.errors import invariant
from quiesce.ids import PageTag
from quiesce.transport.refusals import RefusedTransfer


class Window:
    """One open window. Whoever takes a piece of its pages holds `lock` and has seen `revoked` false under it."""

    __slots__ = ("lock", "pages", "revoked")

    def __init__(self, pages: npt.NDArray[np.integer[Any]]) -> None:
        self.pages = np.unique(pages)
        self.revoked = False
        self.lock = threading.Lock()

    def covers(self, pages: npt.NDArray[np.integer[Any]]) -> bool:
        return bool(np.isin(pages, self.pages).all())


class Windows:
    """The open windows of one pool. `lend` and `revoke` are called from one thread, `find` from any."""

    def __init__(self) -> None:
        self._open: dict[int, Window] = {}
        self._lock = threading.Lock()

    def lend(self, tag: PageTag, pages: npt.NDArray[np.integer[Any]]) -> None:
        """Permit reads of `pages` that bear `tag`. Windows may share pages."""
        window = Window(pages)
        with self._lock:
            invariant(tag != 0 and tag not in self._open, "lent_once", f"tag {tag}")
            self._open[tag] = window

    def revoke(self, tag: PageTag) -> None:
        """End the permission. Waits for at most one piece that the kernel is copying. Idempotent."""
        with self._lock:
            window = self._open.pop(tag, None)
        if window is not None:
            with window.lock:
                window.revoked = True

    def find(self, tag: int, pages: npt.NDArray[np.integer[Any]]) -> Window | RefusedTransfer:
        """The window that permits such a read, or why there is none."""
        with self._lock:
            window = self._open.get(tag)
        if window is None:
            return RefusedTransfer.NOT_LEASED
        return window if window.covers(pages) else RefusedTransfer.FOREIGN_PAGE
