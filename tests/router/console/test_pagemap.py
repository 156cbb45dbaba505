"""A pool of any size becomes a map of bounded size, on which nothing telling is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.ids import mint_incarnation
from quiesce.protocol.dispatch import PageRange, WorkerSnapshot
from quiesce.router.console.pagemap import MOST_CELLS, MOST_OWNERS, STATES, PageMap, page_map


def pool(*ranges: tuple[str, int]) -> WorkerSnapshot:
    """A pool of runs: state and length, one after the other."""
    first, found, counts = 0, [], dict.fromkeys(STATES, 0)
    for state, length in ranges:
        found.append(PageRange(first, first + length - 1, state, "" if state == "free" else f"req-{first}"))
        counts[state] = counts.get(state, 0) + length
        first += length
    return WorkerSnapshot("decode-0", "decode", mint_incarnation(), counts, 16, tuple(found), (), 0, 0)


def cells(found: PageMap) -> list[str]:
    pairs = zip(found.runs[::2], found.runs[1::2], strict=True)
    return [STATES[state] for state, length in pairs for _ in range(length)]


def test_a_small_pool_is_shown_page_by_page() -> None:
    found = page_map(pool(("free", 2), ("held", 3), ("used", 1)))
    assert found.pages_per_cell == 1
    assert cells(found) == ["free", "free", "held", "held", "held", "used"]
    assert found.owners == [(2, 4, STATES.index("held"), "req-2"), (5, 5, STATES.index("used"), "req-5")]


def test_one_quarantined_page_shows_in_the_largest_pool() -> None:
    found = page_map(pool(("free", 700_000), ("quarantined", 1), ("used", 299_999)))
    assert len(cells(found)) <= MOST_CELLS
    assert cells(found).count("quarantined") == 1
    assert (700_000, 700_000, STATES.index("quarantined"), "req-700000") in found.owners


def test_owners_are_bounded_and_the_most_telling_stay() -> None:
    found = page_map(pool(*[("used", 1), ("free", 1)] * 500, ("held", 1)))
    assert len(found.owners) == MOST_OWNERS
    assert found.owners[-1][2] == STATES.index("held")
    assert found.owners == sorted(found.owners)


def test_an_unknown_state_is_not_shown_as_free() -> None:
    assert cells(page_map(pool(("borrowed", 2)))) == ["used", "used"]


def test_an_empty_pool_has_an_empty_map() -> None:
    assert page_map(pool()).runs == []


@given(st.lists(st.tuples(st.sampled_from(STATES), st.integers(1, 3000)), min_size=1, max_size=20))
def test_each_cell_shows_the_most_telling_of_its_pages(ranges: list[tuple[str, int]]) -> None:
    found = page_map(pool(*ranges))
    pages = [STATES.index(state) for state, length in ranges for _ in range(length)]
    step = found.pages_per_cell
    assert cells(found) == [STATES[max(pages[at : at + step])] for at in range(0, len(pages), step)]
    assert len(cells(found)) <= MOST_CELLS


@pytest.mark.parametrize("pages", [1, MOST_CELLS, MOST_CELLS + 1])
def test_cells_at_the_border(pages: int) -> None:
    assert len(cells(page_map(pool(("used", pages))))) == min(pages, -(-pages // -(-pages // MOST_CELLS)))
