"""What the kernel is told of pages: every byte once, in order, wherever a call ends."""

from __future__ import annotations

import ctypes
import random
from array import array

import numpy as np
import pytest

from quiesce.errors import InvariantBroken
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


def test_what_an_earlier_call_wanted_shortens_none_that_comes_later() -> None:
    memory, place = _memory(bytes(range(200)))
    spans = Spans(memory, place, array("Q", [place, 100, place + 100, 100]))
    for most_bytes in (10, 200, 7, 150, 200):
        assert told(spans, most_bytes) == bytes(range({150: 100}.get(most_bytes, most_bytes)))
    spans.advance(30)
    assert told(spans, 10) == bytes(range(30, 40))
    assert told(spans, 200) == bytes(range(30, 200))


def test_behind_the_last_byte_nothing_is_told() -> None:
    memory, place = _memory(bytes(200))
    spans = Spans(memory, place, array("Q", [place, 100, place + 100, 100]))
    spans.advance(200)
    for tells in (spans.vector, spans.views):
        with pytest.raises(IndexError):
            tells(1)


@pytest.mark.parametrize("others", [0, FEW])
@pytest.mark.parametrize(("first", "pages"), [(7, 2), (8, 1), (-1, 1), (2, 0), (2, -1), (2**31, 1)])
def test_no_address_outside_the_pool_is_told(first: int, pages: int, others: int) -> None:
    runs = np.array([[0, 1]] * others + [[first, pages]], np.int64)
    with pytest.raises(InvariantBroken, match="spans_inside_the_pool"):
        PageMemory(Pool.private(LAYOUT, 8)).spans(runs[:, 0], runs[:, 1])


def test_a_pool_that_was_closed_has_no_addresses() -> None:
    """Its empty arrays lie somewhere, and that is somebody else's."""
    pool = Pool.private(LAYOUT, 8)
    pool.close()
    with pytest.raises(InvariantBroken, match="spans_inside_the_pool"):
        PageMemory(pool).spans(np.array([0]), np.array([1]))


def test_the_pool_stays_mapped_until_the_memory_is_released() -> None:
    pool = Pool.private(LAYOUT, 8)
    pool.page_view()[...] = 7
    memory, mapped = PageMemory(pool), pool._memory
    spans = memory.spans(np.array([0]), np.array([8]))
    pool.close()
    assert told(spans, spans.left_bytes) == b"\x07" * spans.left_bytes
    assert not mapped.closed
    memory.release()
    mapped.close()  # BufferError if anything held it


def _memory(content: bytes) -> tuple[memoryview, int]:
    memory = bytearray(content)
    return memoryview(memory), ctypes.addressof(ctypes.c_char.from_buffer(memory))


def test_one_call_is_told_of_no_more_spans_than_the_kernel_takes() -> None:
    memory = memoryview(bytearray(2 * VECTOR_MOST))
    spans = Spans(memory, 0, array("Q", [n for at in range(2 * VECTOR_MOST) for n in (at, 1)]))
    assert spans.vector(spans.left_bytes)[1] == VECTOR_MOST


def test_no_pages_are_no_bytes() -> None:
    with_pages = PageMemory(Pool.private(LAYOUT, 1))
    nothing = with_pages.spans(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert not nothing.left_bytes
    assert nothing.is_whole
