"""Canaries: bytes of nobody's beside the planes of a pool, in its mapping and in mappings before and after it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

from quiesce.errors import UsageError
from quiesce.kv.storage import Pool, segment_of
from quiesce.transport.conformance.patterns import digest_of_bytes

GUARD_BYTES = 1 << 16
MARK = 0xA5
TRIES = 32
_MAP_FIXED, _MAP_FIXED_NOREPLACE = 0x10, 0x100000
_ANYWHERE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FAILED = ctypes.c_void_p(-1).value


def fresh_memory(at: int, n_bytes: int) -> int:
    """Zeros at that address, in the place of whatever is there; where they are."""
    return _mapped(at, n_bytes, _ANYWHERE | _MAP_FIXED)


def bytes_at(address: int, n_bytes: int) -> bytes:
    return ctypes.string_at(address, n_bytes)


class Canaries:
    """Beside the planes of one pool. `image` is a digest of them."""

    def __init__(self, pool: Pool, beside: tuple[int, ...] = ()) -> None:
        """`beside` are mappings of `GUARD_BYTES` each."""
        segment, base = segment_of(pool.layout, pool.pages, pool.slots), pool.base_address
        used = 0, segment.tags_at, segment.metadata_at
        sizes = pool.pages * pool.layout.page_bytes, pool.tags.nbytes, pool.metadata.nbytes
        firsts = [at + n_bytes for at, n_bytes in zip(used, sizes, strict=True)]
        ends = segment.tags_at, segment.metadata_at, segment.n_bytes
        self._spans = [(base + first, end - first) for first, end in zip(firsts, ends, strict=True)]
        self._spans += [(at, GUARD_BYTES) for at in beside]
        for at, n_bytes in self._spans:
            ctypes.memset(at, MARK, n_bytes)

    def image(self) -> bytes:
        return digest_of_bytes(b"".join(bytes_at(*span) for span in self._spans))


def surrounded(make: Callable[[], Pool]) -> tuple[Pool, tuple[int, ...]]:
    """A pool with a mapping of nobody's right before and right after it; where these are.

    The kernel puts a mapping right below the last one, unless a hole fits; then it is asked again, the hole filled.
    """
    kept = []
    for _ in range(TRIES):
        after = _mapped(0, GUARD_BYTES, _ANYWHERE)
        pool = make()
        kept.append(pool)
        if pool.base_address + segment_of(pool.layout, pool.pages, pool.slots).n_bytes == after:
            before = _mapped(pool.base_address - GUARD_BYTES, GUARD_BYTES, _ANYWHERE | _MAP_FIXED_NOREPLACE)
            if before:
                return pool, (before, after)
    raise UsageError(f"in {TRIES} tries no pool had room for guards on both sides")


def _mapped(at: int, n_bytes: int, flags: int) -> int:
    """The address, or 0 when it cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found = libc.mmap(at, n_bytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    return 0 if found == _FAILED else int(found)
