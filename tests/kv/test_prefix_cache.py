from __future__ import annotations

import numpy as np
import pytest

from quiesce.errors import OutOfPages
from quiesce.ids import PageTag
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.kv.prefix_cache import PrefixCache, Reader
from quiesce.kv.runs import Pages

PAGE = 4


class Bench:
    """A pool of eight pages and its cache."""

    def __init__(self, *, on: bool = True) -> None:
        self.allocator = PageAllocator(8, PageTag(100))
        self.cache = PrefixCache(self.allocator, PAGE, on=on)

    def compute(self, tokens: bytes, salt: str = "") -> tuple[Reader, Pages]:
        """Share what is there, and allocate the rest."""
        reader = self.cache.read(salt, tokens)
        n_pages = -(-len(tokens) // (4 * PAGE)) - len(reader.pages)
        own = self.allocator.allocate(n_pages, "req", PageState.USED).pages
        return reader, np.concatenate([reader.pages, own])

    def go_on(self, tokens: bytes, salt: str = "") -> tuple[Reader, Pages]:
        """A context that is in the cache and goes on being read."""
        reader, pages = self.compute(tokens, salt)
        self.cache.insert(reader, salt, tokens, pages)
        return reader, pages

    def end(self, reader: Reader, pages: Pages) -> None:
        own = pages[len(reader.pages) :]
        reader.leave()
        self.allocator.release(own)

    def warm(self, tokens: bytes, salt: str = "") -> None:
        """A request that came and went."""
        self.end(*self.go_on(tokens, salt))

    def count(self, state: PageState) -> int:
        return self.allocator.counts()[state.name.lower()]


def ids(n_tokens: int, first: int = 0) -> bytes:
    return np.arange(first, first + n_tokens, dtype="<u4").tobytes()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(("n_tokens", "cached"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (12, 2)])
def test_at_least_one_token_is_left_to_compute(bench: Bench, n_tokens: int, cached: int) -> None:
    bench.warm(ids(12))
    reader = bench.cache.read("", ids(n_tokens))
    assert len(reader.pages) == cached


def test_shared_pages_have_no_owner_and_are_nobody_elses_to_free(bench: Bench) -> None:
    first = bench.go_on(ids(10))
    second = bench.go_on(ids(10))
    assert second[1][:2].tolist() == first[1][:2].tolist()
    assert (bench.count(PageState.CACHED), bench.count(PageState.USED)) == (2, 2)
    bench.end(*first)
    assert (bench.count(PageState.CACHED), bench.count(PageState.USED)) == (2, 1)
    assert bench.allocator.available_pages == 5  # six free or cached, less the two that are read, and one's own
    bench.end(*second)
    assert bench.allocator.available_pages == 8


def test_unread_pages_are_given_to_whoever_needs_them(bench: Bench) -> None:
    bench.warm(ids(16))
    bench.warm(ids(16, 100))
    assert bench.allocator.free_pages == 0
    taken = bench.allocator.allocate(3, "r", PageState.USED)
    assert (bench.cache.take_evicted(), bench.count(PageState.CACHED)) == (3, 5)
    assert bench.allocator.tag_of(taken.pages).tolist() == [int(taken.tag)] * 3
    assert len(bench.cache.read("", ids(16)).pages) == 1  # the older one's last pages went
    assert len(bench.cache.read("", ids(17, 100)).pages) == 4


def test_what_is_read_is_never_given_away(bench: Bench) -> None:
    """So a write that still reads its source, through its request's reader, keeps it (rule 13)."""
    reader, _ = bench.go_on(ids(24))
    assert bench.allocator.available_pages == 2
    with pytest.raises(OutOfPages):
        bench.allocator.allocate(3, "r", PageState.USED)
    assert bench.cache.take_evicted() == 0
    reader.leave()
    reader.leave()
    assert bench.allocator.allocate(8, "r", PageState.USED).pages.tolist() == list(range(8))


def test_a_second_copy_stays_its_owners(bench: Bench) -> None:
    """Two requests computed the same at the same time: the pages of the first are kept."""
    first, second = bench.compute(ids(8)), bench.compute(ids(12))
    for (reader, pages), tokens in ((first, ids(8)), (second, ids(12))):
        bench.cache.insert(reader, "", tokens, pages)
    assert (len(first[0].pages), len(second[0].pages)) == (2, 0)
    bench.end(*first)
    bench.end(*second)
    assert bench.allocator.available_pages == 8


def test_a_context_at_its_end_leaves_what_is_new(bench: Bench) -> None:
    first, second = bench.compute(ids(8)), bench.compute(ids(14))
    assert bench.cache.deposit(first[0], "", ids(8), first[1]).tolist() == []
    left = bench.cache.deposit(second[0], "", ids(14), second[1])
    assert left.tolist() == second[1][[0, 1, 3]].tolist()  # two copies and a page that is not full
    bench.allocator.release(left)
    assert len(bench.cache.read("", ids(14)).pages) == 3


def test_tenants_share_nothing(bench: Bench) -> None:
    bench.warm(ids(8), "tenant-a")
    assert len(bench.cache.read("tenant-b", ids(9)).pages) == 0
    assert len(bench.cache.read("tenant-a", ids(9)).pages) == 2


def test_a_condemned_context_is_quarantined_and_nobody_shares_it(bench: Bench) -> None:
    reader, pages = bench.go_on(ids(8))
    bench.warm(ids(13))
    reader.condemn_for_ever()
    reader.leave()
    assert len(bench.cache.read("", ids(13)).pages) == 0
    assert bench.count(PageState.QUARANTINED) == 2
    assert bench.allocator.available_pages == 6
    assert not set(bench.allocator.allocate(6, "r", PageState.USED).pages.tolist()) & set(pages.tolist())


def test_pages_whose_writes_are_fenced_at_last_come_back(bench: Bench) -> None:
    """A poisoned source: out of the tree at once, free when its last reader was proved to read no more."""
    poisoned, other = bench.go_on(ids(8)), bench.go_on(ids(9))
    poisoned[0].condemn()
    assert bench.count(PageState.QUARANTINED) == 2
    bench.end(*other)
    assert bench.count(PageState.QUARANTINED) == 2
    bench.end(*poisoned)
    assert bench.allocator.free_pages == 8


def test_what_was_computed_on_a_condemned_page_is_not_let_in(bench: Bench) -> None:
    bench.warm(ids(8))
    late, bad = bench.compute(ids(12)), bench.compute(ids(9))
    bad[0].condemn()
    bench.cache.insert(late[0], "", ids(12), late[1])
    assert len(bench.cache.read("", ids(13)).pages) == 0
    assert bench.cache.deposit(late[0], "", ids(12), late[1]).tolist() == late[1][2:].tolist()


def test_a_flush_waits_for_readers(bench: Bench) -> None:
    done: list[str] = []
    bench.warm(ids(8, 50))
    reader, pages = bench.go_on(ids(8))
    bench.cache.flush(lambda: done.append("a"))
    assert (done, bench.count(PageState.CACHED)) == ([], 2)
    assert len(bench.cache.read("", ids(9)).pages) == 0
    other = bench.go_on(ids(8))  # let in: no
    assert len(other[0].pages) == 0
    bench.cache.flush(lambda: done.append("b"))
    bench.end(*other)
    assert done == []
    bench.end(reader, pages)
    assert done == ["a", "b"]
    assert bench.allocator.free_pages == 8
    bench.warm(ids(8))
    assert len(bench.cache.read("", ids(9)).pages) == 2


def test_a_flush_does_not_wait_for_quarantine(bench: Bench) -> None:
    reader, _ = bench.go_on(ids(8))
    reader.condemn_for_ever()
    done: list[int] = []
    bench.cache.flush(lambda: done.append(1))
    assert done == [1]


def test_off_means_off() -> None:
    bench = Bench(on=False)
    bench.warm(ids(8))
    assert bench.allocator.free_pages == 8
    done: list[int] = []
    bench.cache.flush(lambda: done.append(1))
    assert done == [1]
