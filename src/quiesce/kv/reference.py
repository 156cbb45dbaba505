"""The allocator said purely: what `allocator.PageAllocator` must equal, page for page. Small pools and tests only."""

from __future__ import annotations

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
    free = PageState.FREE
    return frozenset([number for number, page in enumerate(pool.pages) if page.state == free])


def allocate(
    pool: ReferencePages, n_pages: int, owner: str, state: PageState
) -> tuple[ReferencePages, tuple[int, ...]]:
    """The new pool and the pages taken, in order. Raises OutOfPages."""
    n_free = len(free_pages(pool))
    if n_pages > n_free:
        raise OutOfPages(f"{n_pages} pages are needed and {n_free} are free")
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
    runs: list[list[int]] = []
    before = -2
    for number in sorted(free_pages(pool)):
        if number != before + 1:
            runs.append([])
        runs[-1].append(number)
        before = number
    return [tuple(run) for run in runs]


def mark(pool: ReferencePages, pages: frozenset[int], state: PageState, owner: str | None = None) -> ReferencePages:
    """Another state, and owner unless None, for pages that are not free."""
    invariant(not _any_free(pool, pages), "no_alias")
    changed = list(pool.pages)
    for number in pages:
        page = changed[number]
        changed[number] = Page(state, page.owner if owner is None else owner, page.tag)
    return ReferencePages(tuple(changed), pool.next_tag)


def release(pool: ReferencePages, pages: frozenset[int]) -> ReferencePages:
    """The pages are free."""
    invariant(not _any_free(pool, pages), "once")
    return ReferencePages(_replace(pool, pages, FREE_PAGE), pool.next_tag)


def _any_free(pool: ReferencePages, pages: frozenset[int]) -> bool:
    return any(pool.pages[number].state == PageState.FREE for number in pages)


def _replace(pool: ReferencePages, which: frozenset[int], by: Page) -> tuple[Page, ...]:
    changed = list(pool.pages)
    for number in which:
        changed[number] = by
    return tuple(changed)
