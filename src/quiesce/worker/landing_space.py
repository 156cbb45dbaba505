"""Memory that peers write to, as a worker makes it at its start."""

from __future__ import annotations

from quiesce.ids import mint_first_tag
from quiesce.kv.allocator import PageAllocator
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.transport.registry import backend
from quiesce.worker.landing_memory import LandingSpace
from quiesce.worker.settings import WorkerSettings

MOST_SEATS = 65_536
"""Seats of a decode worker: as many as pages, so that held and quarantined attempts, which keep both, run out of pages
(which are counted and budgeted) before they run out of seats."""


def written_pool(settings: WorkerSettings, layout: Layout, pages: int) -> Pool:
    """A pool that peers write to, with a metadata slot for each hand-off."""
    make = Pool.shared if backend(settings.transport).shared_pool else Pool.private
    return make(layout, pages, min(pages, MOST_SEATS))


def landing_pool(settings: WorkerSettings, layout: Layout, pages: int) -> LandingSpace:
    """All hand-offs land in one pool, and take turns in its pages."""
    pool = written_pool(settings, layout, pages)
    return LandingSpace(PageAllocator(pages, mint_first_tag()), pool.slots, pool)


def landing_space(settings: WorkerSettings, layout: Layout, pages: int) -> LandingSpace:
    """Segments where the transport can lend each hand-off one, else a pool."""
    segmented = backend(settings.transport).segmented
    if segmented is None:
        return landing_pool(settings, layout, pages)
    return LandingSpace(PageAllocator(pages, mint_first_tag()), min(pages, MOST_SEATS), segmented(layout, pages))
