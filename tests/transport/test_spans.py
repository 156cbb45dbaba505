"""What the kernel is told of pages: every byte once, in order, wherever a call ends."""

from __future__ import annotations

import ctypes
import random
from array import array

import numpy as np
import pytest

from quiesce.kv.layout import Layout
from quiesce.kv.runs import FEW
from quiesce.kv.storage import Pool
from quiesce.transport.tcp.spans import VECTOR_MOST, PageMemory, Spans

LAYOUT = Layout(layers=1, kv_heads=1, head_dim=8, page_size=4, layer_groups=1)
MOST_BYTES = 3 * LAYOUT.page_bytes


def told(spans: Spans, most_bytes: int) -> bytes:
    """What lies where the kernel is sent."""
    address, length = spans.vector(most_bytes)
    words = np.frombuffer(ctypes.string_at(address, 16 * length), np.uint64).tolist()
    return b"".join(ctypes.string_at(at, n) for at, n in zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize("runs", [1, FEW, FEW + 1, VECTOR_MOST + 9])
@pytest.mark.parametrize("seed", range(4))
def test_every_byte_is_told_once_and_in_order(runs: int, seed: int) -> None:
    chance = random.Random(seed)
    counts = [chance.choice((1, 1, 2, 9)) for _ in range(runs)]
    first = np.cumsum([0, *(n + 1 for n in counts)])
    pool = Pool.private(LAYOUT, int(first[-1]))
    pool.page_view()[...] = np.random.default_rng(seed).integers(0, 256, pool.page_view().shape, np.uint8)
    order = chance.sample(range(runs), runs)
    memory = PageMemory(pool)
    spans = memory.spans(first[order], np.array(counts)[order])
    expected = b"".join(pool.page_view()[first[i] : first[i] + counts[i]].tobytes() for i in order)
    was_whole = spans.is_whole
    assert spans.left_bytes == len(expected)
    got = b""
    while spans.left_bytes:
        most = chance.choice((1, MOST_BYTES, spans.left_bytes))
        piece = told(spans, most)
        assert 0 < len(piece) <= most
        assert b"".join(spans.views(most)) == piece
        n_bytes = chance.randint(1, len(piece))
        got += piece[:n_bytes]
        spans.advance(n_bytes)
    assert got == expected
    assert (was_whole, spans.is_whole) == (True, False)
    memory.release()
    pool.close()


def test_one_call_is_told_of_no_more_spans_than_the_kernel_takes() -> None:
    memory = memoryview(bytearray(2 * VECTOR_MOST))
    spans = Spans(memory, 0, array("Q", [n for at in range(2 * VECTOR_MOST) for n in (at, 1)]))
    assert spans.vector(spans.left_bytes)[1] == VECTOR_MOST


def test_no_pages_are_no_bytes() -> None:
    with_pages = PageMemory(Pool.private(LAYOUT, 1))
    nothing = with_pages.spans(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert not nothing.left_bytes
    assert nothing.is_whole
