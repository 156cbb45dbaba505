"""Checks of single rules of staged landing: which pages are whose, and what comes back when. No clock, no thread."""

from __future__ import annotations

from quiesce.errors import OutOfPages
from quiesce.ids import PageTag
from quiesce.kv.allocator import Allocation, PageAllocator, PageState
from quiesce.worker.handoff import Places
from quiesce.worker.staged_pages import StagedPages

LANDING, POOL = 4, 8


class Landed:
    """A hand-off of a decode worker, as far as its pages know it."""

    def __init__(self, places: Places) -> None:
        self.lease, self.own_pages, self.seat = places.lease, places.context.pages, places.seat
        self.tainted = self.is_committed = False


class House:
    """Landing memory, a pool, and what was told."""

    def __init__(self) -> None:
        self.landing = PageAllocator(LANDING, PageTag(100))
        self.pool = PageAllocator(POOL, PageTag(1))
        self.reclaimed: list[Allocation] = []
        self.changes = 0
        self.pages = StagedPages(self.landing, LANDING, self.pool, self.reclaimed.append, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def land(self, n_pages: int = 3) -> Landed:
        return Landed(self.pages.take(n_pages, "r1"))

    @property
    def free(self) -> tuple[int, int]:
        """Of landing memory and of the pool."""
        return self.landing.free_pages, self.pool.free_pages

    def counted(self, state: str) -> tuple[int, int]:
        return self.landing.counts()[state], self.pool.counts()[state]


def both_or_neither() -> None:
    house = House()
    first = house.land()
    assert house.free == (1, 5)
    try:
        house.land(2)
    except OutOfPages:
        assert house.free == (1, 5), "who waits for landing pages has none of the pool"
    else:
        raise AssertionError("two landing pages are not there")
    house.pool.allocate(5, "others", PageState.USED)
    try:
        house.land(1)
    except OutOfPages:
        assert house.free == (1, 0), "and the other way round"
    else:
        raise AssertionError("no page of the pool is there")
    assert first.seat == 0
    assert house.pages.free_seats == LANDING - 1


def what_was_told_to_nobody_is_given_up() -> None:
    house = House()
    places = house.pages.take(2, "r1")
    house.pages.give_up(places)
    assert house.free == (LANDING, POOL)
    assert house.pages.free_seats == LANDING


def a_hold_costs_no_page_of_the_pool() -> None:
    house = House()
    house.pages.hold(house.land())
    assert house.counted("held") == (3, 0)
    assert house.free == (1, POOL)
    assert house.changes == 1


def a_hold_keeps_landing_pages() -> None:
    house = House()
    held = house.land()
    house.pages.hold(held)
    assert house.landing.free_pages == 1
    house.pages.release(held)
    assert house.free == (LANDING, POOL)
    assert house.reclaimed == [held.lease]


def quarantine_keeps_landing_pages() -> None:
    house = House()
    lost = house.land()
    house.pages.hold(lost)
    house.pages.quarantine(lost)
    assert house.counted("quarantined") == (3, 0)
    assert house.pages.over_budget(0.5)
    assert not house.pages.over_budget(0.75)
    assert not house.pages.has_room_for(2)
    house.pages.release(lost)
    assert house.free == (LANDING, POOL)
    assert not house.pages.over_budget(0.0)


def a_commit_gives_landing_back() -> None:
    house = House()
    verified = house.land()
    verified.is_committed = True
    house.pages.commit(verified)
    assert house.free == (LANDING, 5)
    assert house.pages.free_seats == LANDING


def a_finished_request_gives_its_context_back() -> None:
    house = House()
    answered = house.land()
    answered.is_committed = True
    house.pages.commit(answered)
    cached, answered.own_pages = answered.own_pages[:1], answered.own_pages[1:]
    house.pages.release(answered)
    assert house.pool.free_pages == POOL - len(cached), "what the cache took over is not the hand-off's"
    assert house.reclaimed == [answered.lease]


def tainted_context_does_not_circulate() -> None:
    house = House()
    tainted = house.land()
    tainted.is_committed = tainted.tainted = True
    house.pages.commit(tainted)
    house.pages.release(tainted)
    assert house.counted("quarantined") == (0, 3)


def a_copy_keeps_what_it_touches() -> None:
    """Its request is over and everything is proved, and the copy goes on."""
    house = House()
    copied = house.land()
    house.pages.copy_begins(copied)
    house.pages.hold(copied)
    house.pages.release(copied)
    assert house.free == (1, 5)
    assert house.pages.is_copying(copied)
    house.pages.copy_ended(copied)
    assert house.free == (LANDING, POOL)
    assert house.reclaimed == [copied.lease]


ALL = (
    both_or_neither,
    what_was_told_to_nobody_is_given_up,
    a_hold_costs_no_page_of_the_pool,
    a_hold_keeps_landing_pages,
    quarantine_keeps_landing_pages,
    a_commit_gives_landing_back,
    a_finished_request_gives_its_context_back,
    tainted_context_does_not_circulate,
    a_copy_keeps_what_it_touches,
)
