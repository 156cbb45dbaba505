"""The only module that touches pool memory as memory: one segment with the KV, tag and metadata planes.

::

    0                      tags_at                metadata_at          n_bytes
    | kv: pages x page     | tags: uint64         | metadata: uint64   |
    |                      | (pages, groups)      | (slots, 8)         |
    each plane starts at a multiple of 4096

A decode pool is a sealed memfd: its size can never change again, so no reader or writer can be made to fault. It is
fresh memory in every incarnation; an address of an earlier life does not exist (PROTOCOL section 2).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import mmap
import os
from collections import deque
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from quiesce.errors import HandshakeRefused, MachineLacksError, UsageError
from quiesce.kv.layout import Layout
from quiesce.kv.runs import CopyRuns

METADATA_WORDS = 8
MAX_PAGES = 2**31 - 1  # page numbers are int32
MAX_SLOTS = 1 << 20
_ALIGNMENT = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# numpy has no bfloat16: its bits are kept in uint16, and the engine reinterprets them.
_STORED_AS = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


class Segment(msgspec.Struct, frozen=True):
    """Byte offsets of the planes of a pool and its whole size."""

    tags_at: int
    metadata_at: int
    n_bytes: int


def segment_of(layout: Layout, pages: int, slots: int) -> Segment:
    """Where the planes of a pool of this shape lie. Raises UsageError for a pool that cannot be."""
    if not 1 <= pages <= MAX_PAGES or not 0 <= slots <= MAX_SLOTS:
        raise UsageError(f"a pool has 1 to {MAX_PAGES} pages and 0 to {MAX_SLOTS} slots, not {pages} and {slots}")
    tags_at = _aligned(pages * layout.page_bytes)
    metadata_at = tags_at + _aligned(pages * layout.layer_groups * 8)
    return Segment(tags_at, metadata_at, metadata_at + _aligned(slots * METADATA_WORDS * 8))


class Pool:
    """KV pages, their tags and the metadata slots, as numpy views of one memory segment.

    `kv`: `(pages, layers, 2, page_size, kv_heads, head_dim)` of the layout's dtype (bfloat16 as uint16), page first,
    so one page is one contiguous block. `tags`: uint64 `(pages, layer_groups)`. `metadata`: uint64 `(slots, 8)`.
    All of it starts as zeros that the kernel supplies on first touch: a large pool costs nothing until it is used.

    `fd` is the memfd of a pool made by `shared`, else -1. The mapping is not inherited by forked children.
    """

    def __init__(self, layout: Layout, pages: int, slots: int, memory: mmap.mmap, fd: int = -1) -> None:
        """Use `private`, `shared` or `attach`."""
        segment = segment_of(layout, pages, slots)
        # A forked child must not hold a mapping: its stores would outlive the death that counts as the fence.
        memory.madvise(mmap.MADV_DONTFORK)
        self.layout = layout
        self.pages = pages
        self.slots = slots
        self.fd = fd
        self._memory = memory
        shape = (pages, layout.layers, 2, layout.page_size, layout.kv_heads, layout.head_dim)
        dtype = _STORED_AS[layout.dtype]
        self.kv: npt.NDArray[Any] = np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)
        self.tags = self._words(segment.tags_at, pages, layout.layer_groups)
        self.metadata = self._words(segment.metadata_at, slots, METADATA_WORDS)

    @classmethod
    def private(cls, layout: Layout, pages: int, slots: int = 0) -> Pool:
        """Fresh anonymous memory of this process (prefill, aggregated). Raises MachineLacksError, UsageError."""
        n_bytes = segment_of(layout, pages, slots).n_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        return cls(layout, pages, slots, _map(-1, n_bytes, flags))

    @classmethod
    def shared(cls, layout: Layout, pages: int, slots: int) -> Pool:
        """A fresh memfd, sealed against any change of size. Raises MachineLacksError, UsageError."""
        n_bytes = segment_of(layout, pages, slots).n_bytes
        fd = _sealed_memfd(n_bytes)
        try:
            return cls(layout, pages, slots, _map(fd, n_bytes, mmap.MAP_SHARED), fd)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, layout: Layout, pages: int, slots: int) -> Pool:
        """A writer's view of a peer's pool. The caller keeps `fd` and may close it at once.

        Raises HandshakeRefused unless `fd` is a memfd that is sealed as `shared` does it and exactly as large.
        """
        n_bytes = segment_of(layout, pages, slots).n_bytes
        _check_peer_memory(fd, n_bytes)
        try:
            return cls(layout, pages, slots, _map(fd, n_bytes, mmap.MAP_SHARED))
        except MachineLacksError as error:
            raise HandshakeRefused(f"the pool of the peer cannot be mapped: {error}") from error

    @property
    def base_address(self) -> int:
        """Address of page 0 in this process; page `p` is at `base_address + p * layout.page_bytes`."""
        return int(self.kv.ctypes.data)

    def page_view(self) -> npt.NDArray[np.uint8]:
        """Every page as raw bytes: uint8 `(pages, page_bytes)`, a view."""
        return self.kv.reshape(self.pages, -1).view(np.uint8)

    def stamp(self, pages: npt.NDArray[np.integer[Any]], tag: int) -> None:
        """Write `tag` for every layer group of `pages` (already checked to lie in the pool)."""
        self.tags[pages] = np.uint64(tag)

    def discard(self) -> None:
        """Give a shared pool's memory back to the kernel although others may map it, and close it.

        What they write later is theirs: it takes memory again, which goes with their mapping.
        """
        self._memory.madvise(mmap.MADV_REMOVE)
        self.close()

    def close(self) -> None:
        """Give the memory back; idempotent. Safe with views outstanding: they keep the mapping alive until they die.

        After it `kv`, `tags` and `metadata` are empty arrays. No thread may still copy by address.
        """
        self.kv = self.kv[:0].copy()
        self.tags = self.tags[:0].copy()
        self.metadata = self.metadata[:0].copy()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        # BufferError: a view is outstanding, and the last one to die unmaps the memory by reference counting
        with contextlib.suppress(BufferError):
            self._memory.close()

    def _words(self, at: int, rows: int, columns: int) -> npt.NDArray[np.uint64]:
        # frombuffer refuses an offset at the end of the buffer, which is where a plane without rows lies
        if not rows:
            return np.zeros((0, columns), np.uint64)
        return np.frombuffer(self._memory, np.uint64, rows * columns, at).reshape(rows, columns)


def copy_pages(source: Pool, target: Pool, runs: CopyRuns) -> None:
    """Copy whole pages from one pool to another, without the GIL. One layout; runs were checked to lie inside both."""
    page_bytes = source.layout.page_bytes
    sources = source.base_address + runs.source * page_bytes
    targets = target.base_address + runs.target * page_bytes
    sizes = runs.pages * page_bytes
    # map into an empty deque: one C loop, no bytecode per run; ctypes.memmove releases the GIL for each
    deque(map(ctypes.memmove, targets.tolist(), sources.tolist(), sizes.tolist()), maxlen=0)


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def _map(fd: int, n_bytes: int, flags: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, n_bytes, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    except (OSError, OverflowError, ValueError) as error:
        raise MachineLacksError(f"cannot map {n_bytes} bytes of pool: {error}", remedy="Use a smaller pool.") from error


def _sealed_memfd(n_bytes: int) -> int:
    if not hasattr(os, "memfd_create"):
        raise MachineLacksError("this system has no memfd_create", remedy="Use --mode aggregated, or Linux.")
    fd = os.memfd_create("quiesce-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, n_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except (OSError, OverflowError) as error:
        os.close(fd)
        raise MachineLacksError(f"cannot make a pool of {n_bytes} bytes: {error}") from error
    return fd


def _check_peer_memory(fd: int, n_bytes: int) -> None:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        size = os.fstat(fd).st_size
    except OSError as error:
        raise HandshakeRefused(f"what the peer passed as its pool is no memfd: {error}") from error
    if seals & _SEALS != _SEALS:
        raise HandshakeRefused("the pool of the peer is not sealed: its size could change under us")
    if size != n_bytes:
        raise HandshakeRefused(f"the pool of the peer has {size} bytes, its description says {n_bytes}")
