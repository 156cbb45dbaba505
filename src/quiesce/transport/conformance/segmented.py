"""Segments (`--landing staged` over a transport that can lend them) as the checks see a receiver: one lease at a time.

Decode's memory is then the segment of the lease that it armed last; after `reclaim`, one that nobody was lent yet.
"""

from __future__ import annotations

from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.transport.shm_segments import SegmentReceiver
from quiesce.transport.shm_targets import SEGMENT_SLOTS


class LeaseByLease(SegmentReceiver):
    """`memory` is what decode looks at. A segment has the pages up to the lease's last one, and one slot."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.layout, pool.pages)
        self._most_pages = pool.pages
        self._described: list[Peer] = []
        self.memory = self._unlent()

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        self._described.append(peer)
        return super().describe(peer)

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        self.lend(tag, int(pages.max()) + 1, tuple(self._described))
        self.memory = self.segment(tag)

    def reclaim(self, tag: PageTag) -> None:
        """As decode does after a fence, at once."""
        super().reclaim(tag)
        self.memory = self._unlent()

    def _unlent(self) -> Pool:
        return Pool.shared(self._layout, self._most_pages, SEGMENT_SLOTS)
