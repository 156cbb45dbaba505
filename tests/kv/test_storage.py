from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quiesce.errors import HandshakeRefused, MachineLacksError, UsageError
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool, segment_of

LAYOUT = Layout(layers=4, kv_heads=2, head_dim=8, page_size=4, layer_groups=2)
PAGES = 10
SLOTS = 3


@pytest.fixture
def pool() -> Iterator[Pool]:
    shared = Pool.shared(LAYOUT, PAGES, SLOTS)
    yield shared
    shared.close()


def test_a_fresh_pool_is_zeros_of_the_right_shapes(pool: Pool) -> None:
    assert pool.kv.shape == (PAGES, 4, 2, 4, 2, 8)
    assert pool.tags.shape == (PAGES, 2)
    assert pool.metadata.shape == (SLOTS, 8)
    assert pool.kv.dtype == np.float32
    assert pool.tags.dtype == pool.metadata.dtype == np.uint64
    assert not pool.kv.any()
    assert not pool.tags.any()
    assert not pool.metadata.any()


def test_a_private_pool_needs_no_slots_and_has_no_descriptor() -> None:
    private = Pool.private(LAYOUT, PAGES)
    assert private.metadata.shape == (0, 8)
    assert private.fd == -1
    private.kv[...] = 1
    private.close()


def test_planes_start_at_page_boundaries_and_never_overlap(pool: Pool) -> None:
    segment = segment_of(LAYOUT, PAGES, SLOTS)
    assert segment.tags_at % 4096 == segment.metadata_at % 4096 == segment.n_bytes % 4096 == 0
    assert pool.tags.ctypes.data - pool.base_address == segment.tags_at
    assert pool.metadata.ctypes.data - pool.base_address == segment.metadata_at
    pool.kv[...] = 1
    pool.tags[...] = 2
    pool.metadata[...] = 3
    assert (pool.kv == 1).all()
    assert (pool.tags == 2).all()
    assert (pool.metadata == 3).all()


def test_a_page_is_one_contiguous_block(pool: Pool) -> None:
    pool.page_view()[7] = 0xFF
    assert np.isnan(pool.kv[7]).all()
    assert not pool.kv[:7].any()
    assert not pool.kv[8:].any()
    assert pool.page_view().shape == (PAGES, LAYOUT.page_bytes)
    assert pool.page_view()[7].ctypes.data == pool.base_address + 7 * LAYOUT.page_bytes


def test_bfloat16_is_kept_as_bits() -> None:
    private = Pool.private(Layout(1, 1, 4, 2, dtype="bfloat16"), 3)
    assert private.kv.dtype == np.uint16
    private.close()


def test_a_stamp_marks_every_group_of_its_pages_only(pool: Pool) -> None:
    pool.stamp(np.array([2, 5], np.int32), 2**63 + 1)
    assert (pool.tags[[2, 5]] == np.uint64(2**63 + 1)).all()
    assert not pool.tags[[0, 1, 3, 4, 6, 7, 8, 9]].any()


def test_an_attached_pool_is_the_same_memory(pool: Pool) -> None:
    writer = Pool.attach(pool.fd, LAYOUT, PAGES, SLOTS)
    writer.kv[3] = 5
    writer.stamp(np.array([3], np.int32), 9)
    writer.metadata[1, 0] = 9
    assert (pool.kv[3] == 5).all()
    assert (pool.tags[3] == 9).all()
    assert pool.metadata[1, 0] == 9
    writer.close()
    assert (pool.kv[3] == 5).all()


def test_the_size_can_never_change(pool: Pool) -> None:
    size = os.fstat(pool.fd).st_size
    for other in (0, size - 4096, size + 4096):
        with pytest.raises(PermissionError):
            os.ftruncate(pool.fd, other)
    with pytest.raises(PermissionError):
        fcntl.fcntl(pool.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW])
def test_memory_that_is_not_fully_sealed_is_refused(seals: int) -> None:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, segment_of(LAYOUT, PAGES, SLOTS).n_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(HandshakeRefused, match="not sealed"):
        Pool.attach(fd, LAYOUT, PAGES, SLOTS)
    os.close(fd)


@pytest.mark.parametrize(("pages", "slots"), [(PAGES + 100, SLOTS), (PAGES - 9, SLOTS), (PAGES, 1000)])
def test_a_description_that_is_not_the_memory_is_refused(pool: Pool, pages: int, slots: int) -> None:
    with pytest.raises(HandshakeRefused, match="bytes, its description says"):
        Pool.attach(pool.fd, LAYOUT, pages, slots)


def test_a_sealed_memory_that_cannot_be_written_is_refused() -> None:
    n_bytes = segment_of(LAYOUT, PAGES, SLOTS).n_bytes
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, n_bytes)
    all_seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, all_seals)
    with pytest.raises(HandshakeRefused, match="cannot be mapped"):
        Pool.attach(fd, LAYOUT, PAGES, SLOTS)
    os.close(fd)


def test_other_kinds_of_descriptor_are_refused() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(segment_of(LAYOUT, PAGES, SLOTS).n_bytes)
        with pytest.raises(HandshakeRefused):
            Pool.attach(file.fileno(), LAYOUT, PAGES, SLOTS)
    reading, writing = os.pipe()
    with pytest.raises(HandshakeRefused, match="no memfd"):
        Pool.attach(writing, LAYOUT, PAGES, SLOTS)
    os.close(reading)
    os.close(writing)
    with pytest.raises(HandshakeRefused, match="no memfd"):
        Pool.attach(writing, LAYOUT, PAGES, SLOTS)


@pytest.mark.parametrize(("pages", "slots"), [(0, 0), (-1, 0), (2**31, 0), (1, -1), (1, 2**40)])
def test_a_pool_that_cannot_be_is_refused(pages: int, slots: int) -> None:
    with pytest.raises(UsageError):
        Pool.private(LAYOUT, pages, slots)


def test_a_pool_larger_than_any_machine_says_what_is_lacking() -> None:
    huge = Layout(layers=4096, kv_heads=4096, head_dim=65536, page_size=65536)
    with pytest.raises(MachineLacksError):
        Pool.private(huge, 2**31 - 1)
    with pytest.raises(MachineLacksError):
        Pool.shared(huge, 2**31 - 1, 0)


def test_closing_with_views_outstanding_is_safe(pool: Pool) -> None:
    writer = Pool.attach(pool.fd, LAYOUT, PAGES, SLOTS)
    view = writer.kv[4]
    writer.close()
    writer.close()
    view[...] = 3
    assert (pool.kv[4] == 3).all()
    assert writer.kv.shape[0] == writer.tags.shape[0] == writer.metadata.shape[0] == 0


def test_closing_closes_the_descriptor() -> None:
    shared = Pool.shared(LAYOUT, PAGES, SLOTS)
    fd = shared.fd
    shared.close()
    assert shared.fd == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_neither_children_by_fork_nor_by_exec_get_the_memory(pool: Pool) -> None:
    writer = Pool.attach(pool.fd, LAYOUT, PAGES, SLOTS)
    assert not os.get_inheritable(pool.fd)
    for mapped in (pool, writer):
        assert "dc" in _vm_flags(mapped.base_address)  # MADV_DONTFORK
    writer.close()


def test_a_large_pool_costs_nothing_until_it_is_used() -> None:
    shared = Pool.shared(LAYOUT, 1 << 20, 16)
    assert os.fstat(shared.fd).st_size > 1 << 30
    assert os.fstat(shared.fd).st_blocks == 0
    shared.kv[1 << 19] = 1
    assert os.fstat(shared.fd).st_blocks * 512 <= 1 << 22  # the touched page, or a huge page around it
    shared.close()


def _vm_flags(address: int) -> list[str]:
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split(maxsplit=1)[0]
        if not head.endswith(":"):
            low, high = (int(part, 16) for part in head.split("-"))
            inside = low <= address < high
        elif inside and head == "VmFlags:":
            return line.split()[1:]
    return []
