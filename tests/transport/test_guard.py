"""Canaries see a byte on either side of every plane of a pool, and nothing of what is in them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool, segment_of
from quiesce.transport.conformance.guard import Canaries, surrounded
from quiesce.transport.conformance.guard_checks import PAGE_BYTES, PAGES
from quiesce.transport.conformance.patterns import layout_of

LAYOUT = layout_of(PAGE_BYTES)
SEGMENT = segment_of(LAYOUT, PAGES, 1)
KV_BYTES, TAG_BYTES, SLOT_BYTES = PAGES * PAGE_BYTES, PAGES * 8, 64
BESIDE = {
    "before the pages": -1,
    "after the pages": KV_BYTES,
    "before the tags": SEGMENT.tags_at - 1,
    "after the tags": SEGMENT.tags_at + TAG_BYTES,
    "before the metadata": SEGMENT.metadata_at - 1,
    "after the metadata": SEGMENT.metadata_at + SLOT_BYTES,
    "after the pool": SEGMENT.n_bytes,
}


@pytest.mark.parametrize("at", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("make", [Pool.private, Pool.shared])
def test_a_byte_beside_a_plane_is_seen(make: Callable[[Layout, int, int], Pool], at: int) -> None:
    pool, beside = surrounded(lambda: make(LAYOUT, PAGES, 1))
    canaries = Canaries(pool, beside)
    before = canaries.image()
    pool.page_view()[:] = 7
    pool.tags[:] = 7
    pool.metadata[:] = 7
    assert canaries.image() == before
    ctypes.memset(pool.base_address + at, 0, 1)
    assert canaries.image() != before
