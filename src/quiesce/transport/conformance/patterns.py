"""Contents that tell where a byte came from: each page of each filling has bytes of its own."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool

DIGEST_BYTES = 16


def layout_of(page_bytes: int) -> Layout:
    """A layout whose pages have that many bytes, a multiple of 512."""
    return Layout(layers=1, kv_heads=1, head_dim=64, page_size=page_bytes // 512, layer_groups=1)


def page_pattern(seed: int, page: int, page_bytes: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng((seed, page)).integers(0, 256, page_bytes, np.uint8)


def fill(pool: Pool, seed: int) -> None:
    view = pool.page_view()
    for page in range(pool.pages):
        view[page] = page_pattern(seed, page, pool.layout.page_bytes)


def shuffled(pages: int) -> npt.NDArray[np.int32]:
    """Every page once, in an order that has hardly a run in it."""
    return np.random.default_rng(2).permutation(pages).astype(np.int32)


def digest(data: npt.NDArray[Any]) -> bytes:
    """Of the bytes at one moment: copied first, faster than a thread that goes on placing them."""
    return digest_of_bytes(data.tobytes())


def digest_of_bytes(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@functools.cache
def digest_of(seed: int, page: int, page_bytes: int) -> bytes:
    """What `digest` says of a page that holds the pattern."""
    return digest(page_pattern(seed, page, page_bytes))
