"""Which pages of a staged hand-off are whose, and what comes back when (PROTOCOL section 6).

A hand-off has landing pages, which peers may write, and as many pages of the pool, which they can not: the context. Its
copy from the ones to the others is a reader and a writer of this process: pages that it touches are given back when it
has ended, whatever becomes of the hand-off meanwhile (rule 16).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from quiesce.errors import OutOfPages
from quiesce.kv.allocator import Allocation, PageAllocator, PageState
from quiesce.kv.runs import Pages
from quiesce.worker.handoff import Places
from quiesce.worker.seats import Seats

STATES = ("free", "reserved", "held", "quarantined")
"""Of a landing page: nobody ever reads it in place, so it is never used nor cached."""


class Landed(Protocol):
    """A hand-off, as its pages see it. Of the context, `own_pages` are those that no cache took over."""

    @property
    def lease(self) -> Allocation: ...
    @property
    def own_pages(self) -> Pages: ...
    @property
    def seat(self) -> int: ...
    @property
    def tainted(self) -> bool: ...
    @property
    def is_committed(self) -> bool: ...


class StagedPages:
    """`reclaim` is told of a lease that nobody here reads any more, `changed` when pages came back otherwise than by
    `release`.
    """

    def __init__(
        self,
        landing: PageAllocator,
        seats: int,
        allocator: PageAllocator,
        reclaim: Callable[[Allocation], None],
        changed: Callable[[], None],
    ) -> None:
        self._landing = landing
        self._seats = Seats(seats)
        self._allocator = allocator
        self._reclaim = reclaim
        self._changed = changed
        self._copying: dict[Landed, list[Callable[[], None]]] = {}  # and what waits for the end of its copy

    # ------------------------------------------------------------ reservations

    @property
    def free_seats(self) -> int:
        return self._seats.free

    def has_room_for(self, n_pages: int) -> bool:
        return n_pages <= min(self._allocator.usable_pages, self._landing.usable_pages)

    def take(self, n_pages: int, owner: str) -> Places:
        """Landing pages and context pages together: who has one never waits for the other, so nobody waits in a ring.

        Context pages are taken now so that a commit, which gives landing pages back, never waits for anything. Raises
        OutOfPages.
        """
        if n_pages > self._landing.free_pages:
            raise OutOfPages(f"{n_pages} landing pages are needed and {self._landing.free_pages} are free")
        context = self._allocator.allocate(n_pages, owner, PageState.RESERVED)
        return Places(self._landing.allocate(n_pages, owner, PageState.RESERVED), context, self._seats.take())

    def give_up(self, places: Places) -> None:
        self._allocator.release(places.context.pages)
        self._landing.release(places.lease.pages)
        self._seats.give_back(places.seat)

    # ------------------------------------------------------------ the copy

    def copy_begins(self, handoff: Landed) -> None:
        """From now on its landing pages are read and its context is written."""
        self._copying[handoff] = []

    def copy_ended(self, handoff: Landed) -> None:
        """Neither any more: what waited for it comes back."""
        for give_back in self._copying.pop(handoff):
            give_back()

    def is_copying(self, handoff: Landed) -> bool:
        return handoff in self._copying

    @property
    def is_busy(self) -> bool:
        return bool(self._copying)

    # ------------------------------------------------------------ ends

    def hold(self, handoff: Landed) -> None:
        """Nothing remote can write to the context's pages: they need no proof."""
        self._landing.mark(handoff.lease.pages, PageState.HELD)
        self._when_copied(handoff, self._free_context)

    def quarantine(self, handoff: Landed) -> None:
        self._landing.mark(handoff.lease.pages, PageState.QUARANTINED)

    def commit(self, handoff: Landed) -> None:
        self._free_lease(handoff)

    def release(self, handoff: Landed) -> None:
        if handoff.is_committed:
            give_back_context(handoff, self._allocator)
        else:
            self._when_copied(handoff, self._free_lease)

    def _when_copied(self, handoff: Landed, give_back: Callable[[Landed], None]) -> None:
        if self.is_copying(handoff):
            self._copying[handoff].append(lambda: give_back(handoff))
        else:
            give_back(handoff)

    def _free_context(self, handoff: Landed) -> None:
        give_back_context(handoff, self._allocator)
        self._changed()

    def _free_lease(self, handoff: Landed) -> None:
        self._reclaim(handoff.lease)
        self._landing.release(handoff.lease.pages)
        self._seats.give_back(handoff.seat)
        self._changed()

    # ------------------------------------------------------------ views

    def pages(self) -> dict[str, int]:
        counts = self._landing.counts()
        return {state: counts[state] for state in STATES}

    def over_budget(self, share: float) -> str:
        quarantined, pages = self._landing.counts()["quarantined"], self._landing.pages
        if quarantined <= share * pages:
            return ""
        return f"{quarantined} of {pages} landing pages are quarantined, over --quarantine-budget"


def give_back_context(handoff: Landed, allocator: PageAllocator) -> None:
    """Free the pool's pages of a hand-off that nobody reads; tainted ones must not circulate again."""
    if handoff.tainted:
        allocator.mark(handoff.own_pages, PageState.QUARANTINED)
    else:
        allocator.release(handoff.own_pages)
