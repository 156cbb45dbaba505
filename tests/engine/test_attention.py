"""The kernel against gather + SDPA, and the promise about its bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from quiesce.engine.attention import compile_attention
from quiesce.engine.jit import compiling
from quiesce.engine.linear import Array

from .gathered import attend_gathered

Attend = Callable[..., None]

HEAD_DIM, GROUP, KV_HEADS, LAYERS = 32, 3, 2, 2
SCALE = HEAD_DIM**-0.5
TOKENS = 300


@pytest.fixture(scope="module")
def attend() -> Attend:
    with compiling("test-attention"):
        return compile_attention(HEAD_DIM, GROUP)


class Case:
    """A sequence's queries at all positions, and its pages in a pool where everything else is NaN."""

    def __init__(self, page_size: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        kv = rng.standard_normal((TOKENS, 2, KV_HEADS, HEAD_DIM), np.float32)
        self.qkv = rng.standard_normal((TOKENS, (KV_HEADS * GROUP + 2 * KV_HEADS) * HEAD_DIM), np.float32)
        n_pages = -(-TOKENS // page_size)
        self.pages = rng.permutation(n_pages + 5)[:n_pages].astype(np.int32)
        self.pool = np.full((n_pages + 5, LAYERS, 2, page_size, KV_HEADS, HEAD_DIM), np.nan, np.float32)
        positions = np.arange(TOKENS)
        self.pool[self.pages[positions // page_size], 1, :, positions % page_size] = kv

    def oracle(self, start: int, rows: int) -> Array:
        heads = KV_HEADS * GROUP
        queries = torch.from_numpy(self.qkv[start : start + rows, : heads * HEAD_DIM]).reshape(rows, heads, HEAD_DIM)
        pages = torch.from_numpy(self.pages.astype(np.int64))
        out = attend_gathered(queries, torch.from_numpy(self.pool), 1, pages, start, SCALE)
        return np.asarray(out.reshape(rows, -1).numpy())

    def run(self, attend: Attend, bounds: list[int], heads: tuple[int, int] = (0, KV_HEADS)) -> Array:
        """Rows from bounds[0] to bounds[-1], one span between each two bounds."""
        first = bounds[0]
        spans = np.array([[a - first, b - first, a, 0] for a, b in itertools.pairwise(bounds)], np.int64)
        qkv = np.ascontiguousarray(self.qkv[first : bounds[-1]])
        out = np.zeros((bounds[-1] - first, KV_HEADS * GROUP * HEAD_DIM), np.float32)
        table = self.pages.reshape(1, -1)
        attend(qkv, spans, 0, len(spans), *heads, self.pool, 1, table, out, np.float32(SCALE))
        return out


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
def test_the_kernel_agrees_with_gather_and_sdpa(attend: Attend, page_size: int) -> None:
    """Chunks at the start, across blocks and pages, and single rows at all the edges."""
    case = Case(page_size)
    for start, rows in ((0, 1), (0, TOKENS), (63, 2), (64, 64), (100, 17), (TOKENS - 1, 1), (127, 130)):
        out = case.run(attend, [start, start + rows])
        np.testing.assert_allclose(out, case.oracle(start, rows), rtol=0, atol=2e-6)


def test_bits_depend_on_the_position_alone(attend: Attend) -> None:
    """One span, many spans, single rows, one head at a time, pages of any size: equal to the last bit."""
    case = Case(16)
    whole = case.run(attend, [0, TOKENS])
    assert np.array_equal(whole, case.run(attend, [0, 1, 15, 16, 17, 63, 64, 65, 200, TOKENS]))
    assert np.array_equal(whole, case.run(attend, list(range(TOKENS + 1))))
    assert np.array_equal(whole[77:], case.run(attend, [77, TOKENS]))
    assert np.array_equal(whole, case.run(attend, [0, TOKENS], (0, 1)) + case.run(attend, [0, TOKENS], (1, 2)))
    for page_size in (1, 3, 64):
        assert np.array_equal(whole, Case(page_size).run(attend, [0, TOKENS]))


def test_very_unequal_scores_neither_overflow_nor_vanish(attend: Attend) -> None:
    """Scores of several hundred: the exponential of their differences is clamped, the answer is the best position."""
    case = Case(16)
    case.qkv *= 100
    out = case.run(attend, [0, TOKENS])
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out, case.oracle(0, TOKENS), rtol=0, atol=2e-3)
