"""The allocator said purely: what `allocator.PageAllocator` must equal, page for page. Small pools and tests only."""

from __future__ import annotations

import itertools

import msgspec

from quiesce.errors import OutOfPages, invariant
from quiesce.ids import PageTag
from quiesce.kv.states import PageState


class Page(msgspec.Struct, frozen=True):
    """One page: a free one has owner "" and tag 0."""

    state: PageState = PageState.FREE
    owner: str = ""
    tag: int = 0


FREE_PAGE = Page()


class ReferencePages(msgspec.Struct, frozen=True):
    """A pool and the tag that the next allocation gets. Hashable; every operation returns another pool."""

    pages: tuple[Page, ...]
    next_tag: int


def fresh(n_pages: int, first_tag: PageTag) -> ReferencePages:
    return ReferencePages((FREE_PAGE,) * n_pages, int(first_tag))


def free_pages(pool: ReferencePages) -> frozenset[int]:
    return frozenset(number for number, page in enumerate(pool.pages) if page.state == PageState.FREE)


def allocate(
    pool: ReferencePages, n_pages: int, owner: str, state: PageState
) -> tuple[ReferencePages, tuple[int, ...]]:
    """The new pool and the pages taken, in order. Raises OutOfPages."""
    if n_pages > len(free_pages(pool)):
        raise OutOfPages(f"{n_pages} pages are needed and {len(free_pages(pool))} are free")
    chosen = choose(pool, n_pages)
    taken = _replace(pool, frozenset(chosen), Page(state, owner, pool.next_tag))
    return ReferencePages(taken, pool.next_tag + 1), chosen


def choose(pool: ReferencePages, n_pages: int) -> tuple[int, ...]:
    """The lowest free run that holds everything; else the longest runs (the lower of equals), in page order."""
    runs = free_runs(pool)
    for run in runs:
        if len(run) >= n_pages:
            return run[:n_pages]
    chosen: tuple[int, ...] = ()
    for run in sorted(runs, key=len, reverse=True):
        chosen += run[: n_pages - len(chosen)]
    return tuple(sorted(chosen))


def free_runs(pool: ReferencePages) -> list[tuple[int, ...]]:
    """Maximal runs of free pages, lowest first."""
    free = sorted(free_pages(pool))
    grouped = itertools.groupby(enumerate(free), key=lambda pair: pair[1] - pair[0])
    return [tuple(page for _, page in run) for _, run in grouped]


def mark(pool: ReferencePages, pages: frozenset[int], state: PageState, owner: str | None = None) -> ReferencePages:
    """Another state, and owner unless None, for pages that are not free."""
    invariant(not pages & free_pages(pool), "no_alias")
    changed = tuple(
        Page(state, page.owner if owner is None else owner, page.tag) if number in pages else page
        for number, page in enumerate(pool.pages)
    )
    return ReferencePages(changed, pool.next_tag)


def release(pool: ReferencePages, pages: frozenset[int]) -> ReferencePages:
    """The pages are free."""
    invariant(not pages & free_pages(pool), "once")
    return ReferencePages(_replace(pool, pages, FREE_PAGE), pool.next_tag)


def _replace(pool: ReferencePages, which: frozenset[int], by: Page) -> tuple[Page, ...]:
    return tuple(by if number in which else page for number, page in enumerate(pool.pages))
