"""Decode's receivers without their guard: who knew a lease once may write there for ever, as with a bare library."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.ids import PageTag
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.transport.mooncake.receiver import MooncakeReceiver
from quiesce.transport.tcp.leases import Armed, Leases


class Once(Armed):
    """A lease that stays writable. `late` once it was given back; its late writes leave tags alone, as RDMA does."""

    __slots__ = ("late",)

    def __init__(self, tag: PageTag, pages: npt.NDArray[np.integer[Any]], slot: int) -> None:
        super().__init__(tag, pages, slot)
        self.late = False

    def seal(self, pool: Pool, pages: npt.NDArray[np.integer[Any]], words: tuple[int, ...]) -> None:
        if not self.late:
            super().seal(pool, pages, words)


class UnguardedLeases(Leases):
    """Nothing is looked up and nothing is taken back."""

    def __init__(self) -> None:
        super().__init__(0)
        self._ever: dict[int, Once] = {}

    def arm(self, tag: PageTag, pages: npt.NDArray[np.integer[Any]], slot: int) -> None:
        self._ever[tag] = Once(tag, pages, slot)

    def revoke(self, tag: PageTag) -> None:
        self._ever[tag].late = True

    def find(self, tag: int, pages: npt.NDArray[np.integer[Any]], slot: int | None) -> Armed | str:
        return self._ever.get(tag, "nobody ever had this tag")


class UnguardedMooncakeReceiver(MooncakeReceiver):
    """Registers the whole pool at the first lease, and takes nothing back."""

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        if not self._windows:
            for plane in (self._pool.page_view(), self._pool.tags, self._pool.metadata):
                self._engine.register_memory(int(plane.ctypes.data), plane.nbytes)
            self._windows[tag] = []

    def disarm(self, tag: PageTag) -> None:
        """Nothing."""
