"""What staged writes land in: one pool that all hand-offs share, or a segment for each.

Either way `allocator` says how much of `--landing-bytes` is taken; with segments its page numbers stand for amounts.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from quiesce.kv.allocator import Allocation, PageAllocator
from quiesce.kv.runs import Pages, pack_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.messages import Lease
from quiesce.protocol.receiver_io import LandingMode
from quiesce.transport.shm_segments import SegmentReceiver

FIRST_SLOT = 0


class LandingSpace(msgspec.Struct, frozen=True, eq=False):
    """What a worker starts with: how much may land at once, of how many hand-offs, and where."""

    allocator: PageAllocator
    seats: int
    where: Pool | SegmentReceiver


class Window(msgspec.Struct, frozen=True, eq=False):
    """Where in memory one hand-off landed."""

    pool: Pool
    pages: Pages
    slot: int


class LandingMemory(Protocol):
    @property
    def mode(self) -> LandingMode:
        """What its pages are."""

    def published(self, lease: Allocation, seat: int) -> Lease:
        """The lease as peers are told it."""

    def window(self, lease: Allocation, seat: int) -> Window:
        """Of a lease that was armed and is not reclaimed yet."""

    def reclaim(self, lease: Allocation) -> None:
        """Disarmed, and nobody here reads it any more."""


class SharedMemory:
    """Pages of one pool, which others get when they were proved free."""

    mode = LandingMode.STAGED

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def published(self, lease: Allocation, seat: int) -> Lease:
        return Lease(lease.tag, len(lease.pages), pack_runs(lease.pages), seat)

    def window(self, lease: Allocation, seat: int) -> Window:
        return Window(self._pool, lease.pages, seat)

    def reclaim(self, lease: Allocation) -> None:
        """It stays what it is."""


class SegmentMemory:
    """A segment for each hand-off, which nobody else ever gets: pages and slot count from 0."""

    mode = LandingMode.SEGMENT

    def __init__(self, segments: SegmentReceiver) -> None:
        self._segments = segments

    def published(self, lease: Allocation, seat: int) -> Lease:
        n_pages = len(lease.pages)
        return Lease(lease.tag, n_pages, pack_runs(np.arange(n_pages)), FIRST_SLOT)

    def window(self, lease: Allocation, seat: int) -> Window:
        return Window(self._segments.segment(lease.tag), np.arange(len(lease.pages), dtype=np.int32), FIRST_SLOT)

    def reclaim(self, lease: Allocation) -> None:
        self._segments.reclaim(lease.tag)


def memory_of(space: LandingSpace) -> LandingMemory:
    return SharedMemory(space.where) if isinstance(space.where, Pool) else SegmentMemory(space.where)
