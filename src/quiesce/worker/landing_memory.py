"""What staged writes land in: one pool that all hand-offs share, or a segment for each.

Either way `allocator` says how much of `--landing-bytes` is taken; with segments its page numbers stand for amounts.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from quiesce.errors import MachineLacksError, PeerUnusable
from quiesce.ids import Peer
from quiesce.kv.allocator import Allocation, PageAllocator
from quiesce.kv.layout import Layout
from quiesce.kv.runs import Pages, pack_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.messages import Lease
from quiesce.transport.contract import Receiver
from quiesce.transport.shm_segments import SegmentReceiver

FIRST_SLOT = 0


class LandingSpace(msgspec.Struct, frozen=True, eq=False):
    """What a worker starts with: how much may land. `pool` is None where each hand-off gets a segment."""

    layout: Layout
    allocator: PageAllocator
    pool: Pool | None
    seats: int


class Window(msgspec.Struct, frozen=True, eq=False):
    """Where in memory one hand-off landed."""

    pool: Pool
    pages: Pages
    slot: int


class LandingMemory(Protocol):
    def lend(self, lease: Allocation, seat: int, grants: tuple[Peer, ...]) -> Lease:
        """Let `grants` write; the lease as it is published. Raises PeerUnusable, and then nobody may write."""

    def window(self, lease: Allocation, seat: int) -> Window:
        """Of a lease that was lent and is not reclaimed yet."""

    def reclaim(self, lease: Allocation) -> None:
        """Disarmed, and nobody here reads it any more."""


class SharedMemory:
    """Pages of one pool, which others get when they were proved free."""

    def __init__(self, pool: Pool, transport: Receiver) -> None:
        self._pool = pool
        self._transport = transport

    def lend(self, lease: Allocation, seat: int, grants: tuple[Peer, ...]) -> Lease:
        self._transport.arm(lease.tag, lease.pages, seat)
        return Lease(lease.tag, len(lease.pages), pack_runs(lease.pages), seat)

    def window(self, lease: Allocation, seat: int) -> Window:
        return Window(self._pool, lease.pages, seat)

    def reclaim(self, lease: Allocation) -> None:
        """It stays what it is."""


class SegmentMemory:
    """A segment for each hand-off, which nobody else ever gets: pages and slot count from 0."""

    def __init__(self, transport: SegmentReceiver) -> None:
        self._transport = transport

    def lend(self, lease: Allocation, seat: int, grants: tuple[Peer, ...]) -> Lease:
        n_pages = len(lease.pages)
        try:
            self._transport.lend(lease.tag, n_pages, grants)
        except MachineLacksError as error:
            raise PeerUnusable(f"no segment can be made: {error}", took_effect=False) from error
        return Lease(lease.tag, n_pages, pack_runs(np.arange(n_pages)), FIRST_SLOT)

    def window(self, lease: Allocation, seat: int) -> Window:
        return Window(self._transport.segment(lease.tag), np.arange(len(lease.pages), dtype=np.int32), FIRST_SLOT)

    def reclaim(self, lease: Allocation) -> None:
        self._transport.reclaim(lease.tag)


def memory_of(space: LandingSpace, transport: Receiver) -> LandingMemory:
    """As the transport lends it."""
    if isinstance(transport, SegmentReceiver):
        return SegmentMemory(transport)
    if space.pool is None:
        raise MachineLacksError("this transport lends no segments, and no landing pool was made")
    return SharedMemory(space.pool, transport)
