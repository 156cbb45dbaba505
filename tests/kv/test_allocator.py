from __future__ import annotations

import itertools
import sys
from types import FrameType

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quiesce.errors import InvariantBroken, OutOfPages
from quiesce.ids import PageTag
from quiesce.kv import reference
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.protocol.dispatch import PageRange

FIRST_TAG = PageTag(1000)
TAKEN_STATES = [state for state in PageState if state != PageState.FREE]


def allocator(pages: int = 16) -> PageAllocator:
    return PageAllocator(pages, FIRST_TAG)


def test_tags_count_up_and_name_the_allocation_of_each_page() -> None:
    pool = allocator()
    first, second = (pool.allocate(3, owner, PageState.USED) for owner in ("a", "b"))
    assert (first.tag, second.tag) == (1000, 1001)
    assert pool.tag_of(np.array([0, 3, 6])).tolist() == [1000, 1001, 0]
    pool.release(first.pages)
    assert pool.allocate(3, "c", PageState.USED).tag == 1002
    assert pool.tag_of(first.pages).tolist() == [1002] * 3


def test_pages_come_contiguous_when_a_run_is_long_enough() -> None:
    pool = allocator()
    parts = [pool.allocate(2, "x", PageState.USED) for _ in range(8)]
    for part in (parts[1], parts[4], parts[5]):
        pool.release(part.pages)
    assert pool.allocate(4, "y", PageState.USED).pages.tolist() == [8, 9, 10, 11]


def test_otherwise_from_the_fewest_runs() -> None:
    pool = allocator()
    pool.allocate(16, "x", PageState.USED)
    pool.release(np.array([1, 4, 5, 8, 9, 10, 15]))
    assert pool.allocate(5, "y", PageState.USED).pages.tolist() == [4, 5, 8, 9, 10]


def test_out_of_pages_changes_nothing() -> None:
    pool = allocator()
    pool.allocate(10, "x", PageState.USED)
    before = pool.ranges()
    with pytest.raises(OutOfPages):
        pool.allocate(7, "y", PageState.USED)
    assert pool.ranges() == before
    assert pool.free_pages == 6
    assert pool.allocate(6, "y", PageState.USED).tag == FIRST_TAG + 1


def test_nothing_can_be_allocated_even_from_a_full_pool() -> None:
    pool = allocator()
    pool.allocate(16, "x", PageState.USED)
    assert len(pool.allocate(0, "y", PageState.USED).pages) == 0


def test_a_page_is_released_once() -> None:
    pool = allocator()
    pages = pool.allocate(4, "x", PageState.USED).pages
    with pytest.raises(InvariantBroken, match="once"):
        pool.release(np.array([0, 1, 1]))
    with pytest.raises(InvariantBroken, match="once"):
        pool.release(np.array([3, 4]))
    assert pool.free_pages == 12
    pool.release(pages)
    with pytest.raises(InvariantBroken, match="once"):
        pool.release(pages)
    assert pool.free_pages == 16


def test_free_pages_cannot_be_marked_nor_pages_marked_free() -> None:
    pool = allocator()
    pages = pool.allocate(4, "x", PageState.USED).pages
    with pytest.raises(InvariantBroken, match="no_alias"):
        pool.mark(np.array([3, 4]), PageState.HELD)
    with pytest.raises(InvariantBroken, match="once"):
        pool.mark(pages, PageState.FREE)


@pytest.mark.parametrize("page", [-1, 16])
def test_a_page_outside_the_pool_is_our_bug(page: int) -> None:
    pool = allocator()
    pool.allocate(16, "x", PageState.USED)
    for operation in (pool.release, pool.tag_of, lambda pages: pool.mark(pages, PageState.HELD)):
        with pytest.raises(InvariantBroken, match="page_bounds"):
            operation(np.array([page]))


def test_the_table_of_ranges_says_who_has_what() -> None:
    pool = allocator()
    first = pool.allocate(4, "req-1", PageState.USED).pages
    second = pool.allocate(4, "req-2", PageState.RESERVED).pages
    pool.mark(first[:2], PageState.HELD)
    pool.mark(second[2:], PageState.QUARANTINED, "req-3")
    assert pool.ranges() == (
        PageRange(0, 1, "held", "req-1"),
        PageRange(2, 3, "used", "req-1"),
        PageRange(4, 5, "reserved", "req-2"),
        PageRange(6, 7, "quarantined", "req-3"),
        PageRange(8, 15, "free", ""),
    )
    assert pool.counts() == {"free": 8, "used": 2, "cached": 0, "reserved": 2, "held": 2, "quarantined": 2}


def test_owners_are_forgotten_with_their_last_page() -> None:
    pool = allocator()
    for number in range(1000):
        pages = pool.allocate(8, f"req-{number}", PageState.USED).pages
        pool.mark(pages[:3], PageState.HELD, f"hold-{number}")
        pool.release(pages)
    assert pool._owners.codes.max() == 0
    assert len(pool._owners._names) <= 4


def test_no_python_runs_for_each_page_of_a_million_tokens() -> None:
    pool = allocator(65_536)
    pool.allocate(65_536, "x", PageState.USED)
    pool.release(np.flatnonzero(np.arange(65_536) % 3 != 1).astype(np.int32))
    few, many = _lines_run(pool, 400), _lines_run(pool, 40_000)
    assert many < 10 * few < 10_000


def _lines_run(pool: PageAllocator, n_pages: int) -> int:
    """How many lines of Python an allocation takes."""
    lines = 0

    def count(frame: FrameType, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)  # type: ignore[arg-type]
    try:
        allocation = pool.allocate(n_pages, "y", PageState.USED)
    finally:
        sys.settrace(before)
    pool.release(allocation.pages)
    return lines


class AgainstReference(RuleBasedStateMachine):
    """Whatever is done, the array allocator is the reference allocator."""

    @initialize(pages=st.integers(1, 24))
    def start(self, pages: int) -> None:
        self.pool = PageAllocator(pages, FIRST_TAG)
        self.reference = reference.fresh(pages, FIRST_TAG)

    @rule(n_pages=st.integers(0, 25), owner=st.sampled_from(["", "a", "b", "c"]), state=st.sampled_from(TAKEN_STATES))
    def allocate(self, n_pages: int, owner: str, state: PageState) -> None:
        try:
            expected_pool, expected = reference.allocate(self.reference, n_pages, owner, state)
        except OutOfPages:
            with pytest.raises(OutOfPages):
                self.pool.allocate(n_pages, owner, state)
            return
        got = self.pool.allocate(n_pages, owner, state)
        assert tuple(got.pages.tolist()) == expected
        assert got.tag == self.reference.next_tag
        assert got.pages.dtype == np.int32
        self.reference = expected_pool

    @rule(data=st.data())
    def allocate_more_than_any_run_holds(self, data: st.DataObject) -> None:
        longest = max(map(len, reference.free_runs(self.reference)), default=0)
        free = len(reference.free_pages(self.reference))
        if longest < free:
            self.allocate(data.draw(st.integers(longest + 1, free)), "e", PageState.USED)

    @rule(data=st.data())
    def scatter(self, data: st.DataObject) -> None:
        """Fill the pool and free about half of it, page by page."""
        self.allocate(len(reference.free_pages(self.reference)), "f", PageState.USED)
        kept = data.draw(
            st.lists(st.booleans(), min_size=len(self.reference.pages), max_size=len(self.reference.pages))
        )
        freed = np.flatnonzero(~np.array(kept))
        self.pool.release(freed)
        self.reference = reference.release(self.reference, frozenset(freed.tolist()))

    @precondition(lambda self: self.taken())
    @rule(data=st.data(), state=st.sampled_from(TAKEN_STATES), owner=st.sampled_from([None, "", "a", "d"]))
    def mark(self, data: st.DataObject, state: PageState, owner: str | None) -> None:
        pages = data.draw(st.lists(st.sampled_from(self.taken()), unique=True))
        self.pool.mark(np.array(pages, np.int32), state, owner)
        self.reference = reference.mark(self.reference, frozenset(pages), state, owner)

    @precondition(lambda self: self.taken())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.sampled_from(self.taken()), unique=True))
        self.pool.release(np.array(pages, np.int32))
        self.reference = reference.release(self.reference, frozenset(pages))

    @rule(data=st.data())
    def release_twice(self, data: st.DataObject) -> None:
        free = sorted(reference.free_pages(self.reference))
        if free:
            page = data.draw(st.sampled_from(free))
            with pytest.raises(InvariantBroken):
                self.pool.release(np.array([page]))

    @invariant()
    def both_say_the_same(self) -> None:
        pages = self.reference.pages
        assert self.pool.free_pages == len(reference.free_pages(self.reference)) == self.pool.counts()["free"]
        assert self.pool.counts() == {
            state.name.lower(): sum(page.state == state for page in pages) for state in PageState
        }
        assert self.pool.usable_pages == sum(page.state != PageState.QUARANTINED for page in pages)
        assert self.pool.tag_of(np.arange(len(pages))).tolist() == [page.tag for page in pages]
        assert _expanded(self.pool.ranges()) == [(page.state.name.lower(), page.owner) for page in pages]

    @invariant()
    def ranges_are_maximal(self) -> None:
        ranges = self.pool.ranges()
        for low, high in itertools.pairwise(ranges):
            assert low.last + 1 == high.first
            assert (low.state, low.owner) != (high.state, high.owner)

    def taken(self) -> list[int]:
        free = reference.free_pages(self.reference)
        return [page for page in range(len(self.reference.pages)) if page not in free]


def _expanded(ranges: tuple[PageRange, ...]) -> list[tuple[str, str]]:
    return [(run.state, run.owner) for run in ranges for _ in range(run.first, run.last + 1)]


AgainstReference.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAgainstReference = AgainstReference.TestCase
