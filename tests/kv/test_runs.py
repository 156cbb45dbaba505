from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.errors import BadFrame
from quiesce.kv.runs import copy_runs, expand, index_of, pack_runs, unpack_runs

POOL_PAGES = 64
distinct_pages = st.lists(st.integers(0, POOL_PAGES - 1), unique=True, max_size=POOL_PAGES)


@given(distinct_pages)
def test_a_lease_comes_back_as_it_was(pages: list[int]) -> None:
    packed = pack_runs(np.array(pages, np.int32))
    back = unpack_runs(packed, POOL_PAGES)
    assert back.tolist() == pages
    assert back.dtype == np.int32


def test_a_contiguous_lease_is_one_run_however_long() -> None:
    assert pack_runs(np.arange(5, 40_005, dtype=np.int32)) == (5).to_bytes(4, "little") + (40_000).to_bytes(4, "little")
    assert pack_runs(np.zeros(0, np.int32)) == b""


def test_prompt_order_is_kept_even_when_it_goes_down() -> None:
    assert np.frombuffer(pack_runs(np.array([9, 8, 7, 3, 4])), "<u4").tolist() == [9, 1, 8, 1, 7, 1, 3, 2]


@given(st.binary(max_size=64), st.integers(1, 300))
def test_hostile_bytes_give_distinct_pages_of_the_pool_or_bad_frame(data: bytes, pool_pages: int) -> None:
    try:
        pages = unpack_runs(data, pool_pages)
    except BadFrame:
        return
    assert len(set(pages.tolist())) == len(pages) <= pool_pages
    assert all(0 <= page < pool_pages for page in pages.tolist())


@given(st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=6))
def test_runs_are_accepted_exactly_when_they_are_disjoint_and_inside(runs: list[tuple[int, int]]) -> None:
    data = np.array(runs, "<u4").tobytes()
    named = [page for first, count in runs for page in range(first, first + count)]
    fine = all(count for _, count in runs) and len(set(named)) == len(named) and max(named, default=0) < POOL_PAGES
    if fine:
        assert unpack_runs(data, POOL_PAGES).tolist() == named
    else:
        with pytest.raises(BadFrame):
            unpack_runs(data, POOL_PAGES)


@pytest.mark.parametrize(
    "runs",
    [
        [(0, 2**32 - 1)],
        [(2**32 - 1, 2**32 - 1)],
        [(POOL_PAGES, 1)],
        [(0, 10), (9, 1)],
        [(9, 1), (0, 10)],
        [(3, 0)],
        [(0, POOL_PAGES)] * 1000,
    ],
)
def test_a_lease_that_could_hurt_is_a_bad_frame(runs: list[tuple[int, int]]) -> None:
    with pytest.raises(BadFrame):
        unpack_runs(np.array(runs, "<u4").tobytes(), POOL_PAGES)


def test_a_cut_pair_is_a_bad_frame() -> None:
    with pytest.raises(BadFrame):
        unpack_runs(b"\0" * 12, POOL_PAGES)


@given(distinct_pages, st.randoms(use_true_random=False))
def test_copies_are_paired_as_given_and_joined_as_far_as_possible(
    target: list[int],
    shuffler: random.Random,
) -> None:
    source = list(range(100, 100 + len(target)))
    shuffler.shuffle(source)
    runs = copy_runs(np.array(source, np.int32), np.array(target, np.int32))
    assert expand(runs.source, runs.pages).tolist() == source
    assert expand(runs.target, runs.pages).tolist() == target
    gaps = zip(runs.source[1:], runs.source[:-1] + runs.pages[:-1], strict=True)
    joins = [low == high for low, high in gaps]
    also = (runs.target[1:] == runs.target[:-1] + runs.pages[:-1]).tolist()
    assert not any(a and b for a, b in zip(joins, also, strict=True))


@given(distinct_pages | st.builds(lambda first, n: [*range(first, first + n)], st.integers(0, 40), st.integers(0, 24)))
def test_an_index_finds_the_pages_themselves(pages: list[int]) -> None:
    pool = np.arange(POOL_PAGES)
    assert pool[index_of(np.array(pages, np.int32))].tolist() == pages


def test_runs_can_be_cut_like_a_list() -> None:
    runs = copy_runs(np.array([1, 2, 5, 9]), np.array([4, 5, 7, 1]))
    assert len(runs) == 3
    assert runs[1:].source.tolist() == [5, 9]
    assert runs[1:].target.tolist() == [7, 1]
    assert runs[:1].pages.tolist() == [2]


def test_a_lease_of_billions_is_refused_before_it_is_expanded() -> None:
    runs = np.array([(0, 1 << 30)] * 1000, "<u4").tobytes()
    with pytest.raises(BadFrame, match="more pages than"):
        unpack_runs(runs, 1 << 30)
