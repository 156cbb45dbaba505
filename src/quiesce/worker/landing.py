"""Where hand-offs land, and what of them comes back when. Directly: writes land in the pool itself.

A lease is what peers may write. Its context is what the request reads once the hand-off is committed. Landed directly
the two are the same pages, so whatever awaits a proof costs cache; staged they are not (`staged_landing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from quiesce.integrity.coverage import Told, check_coverage
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.protocol.messages import Failure, Lease
from quiesce.protocol.receiver_io import LandingMode, Verify
from quiesce.worker.handoff import Handoff, Places
from quiesce.worker.landing_memory import SharedMemory
from quiesce.worker.seats import Seats
from quiesce.worker.staged_pages import give_back_context

Then = Callable[[Failure | None], None]


class Landing(Protocol):
    """Owned by the event loop's thread, as the machine is whose effects it carries out on memory."""

    @property
    def mode(self) -> LandingMode:
        """What the pages of its leases are."""

    @property
    def free_seats(self) -> int:
        """How many hand-offs more could begin, if there are pages for them."""

    def has_room_for(self, n_pages: int) -> bool:
        """Whether so many pages of context can ever land: pages in quarantine do not come back by themselves."""

    def take(self, n_pages: int, owner: str) -> Places:
        """Pages and a seat, all of them or nothing. Raises OutOfPages."""

    def give_up(self, places: Places) -> None:
        """Undo `take`: it was published to nobody."""

    def published(self, places: Places) -> Lease:
        """The lease as peers are told it."""

    def verify(self, handoff: Handoff, verify: Verify, then: Then) -> None:
        """Ask the memory itself (rule 11), and call `then` with what is wrong, or None; perhaps later."""

    def hold(self, handoff: Handoff) -> None:
        """The hand-off failed: what peers may write is held."""

    def quarantine(self, handoff: Handoff) -> None:
        """No proof came in time."""

    def commit(self, handoff: Handoff) -> None:
        """Verified, and every writer is drained: the context may be read, the lease is over."""

    def release(self, handoff: Handoff) -> None:
        """Proved, or read no more: give back, once, what has not come back before (rule 15)."""

    def pages(self) -> dict[str, int]:
        """Landing pages by state; {} where the pool's pages are it."""

    def over_budget(self, share: float) -> str:
        """Why so many landing pages are quarantined that a new life should begin, or ""."""

    @property
    def is_busy(self) -> bool:
        """Whether memory is still being read that nobody waits for any more."""

    def close(self) -> None:
        """End its threads."""


class DirectLanding:
    """Writes land in the pool: the fastest, and a hold keeps pages of it."""

    is_busy = False
    mode = LandingMode.DIRECT

    def __init__(self, pool: Pool, allocator: PageAllocator, *, told: bool = True) -> None:
        """`told`: writers put what they know of a hand-off into its metadata slot. Where decode reads, none does."""
        self._told = told
        self._pool = pool
        self._allocator = allocator
        self._memory = SharedMemory(pool)
        self._seats = Seats(pool.slots)

    @property
    def free_seats(self) -> int:
        return self._seats.free

    def has_room_for(self, n_pages: int) -> bool:
        return n_pages <= self._allocator.usable_pages

    def take(self, n_pages: int, owner: str) -> Places:
        pages = self._allocator.allocate(n_pages, owner, PageState.RESERVED)
        return Places(pages, pages, self._seats.take())

    def give_up(self, places: Places) -> None:
        self._allocator.release(places.context.pages)
        self._seats.give_back(places.seat)

    def published(self, places: Places) -> Lease:
        return self._memory.published(places.lease, places.seat)

    def verify(self, handoff: Handoff, verify: Verify, then: Then) -> None:
        slot = handoff.seat if self._told else None
        then(check_coverage(self._pool, handoff.lease.pages, slot, told_of(handoff, verify, self._pool.layout)))

    def hold(self, handoff: Handoff) -> None:
        self._allocator.mark(handoff.own_pages, PageState.HELD)

    def quarantine(self, handoff: Handoff) -> None:
        self._allocator.mark(handoff.own_pages, PageState.QUARANTINED)

    def commit(self, handoff: Handoff) -> None:
        """The lease is the context: its pages and seat stay."""

    def release(self, handoff: Handoff) -> None:
        give_back_context(handoff, self._allocator)
        self._seats.give_back(handoff.seat)

    def pages(self) -> dict[str, int]:
        return {}

    def over_budget(self, share: float) -> str:
        return ""

    def close(self) -> None:
        """There are none."""


def told_of(handoff: Handoff, verify: Verify, layout: Layout) -> Told:
    """What the lease must hold: the prompt beyond the prefix that decode holds, as DONE said."""
    prompt_tokens = handoff.request.prompt_tokens
    pages = layout.pages_for(prompt_tokens) - handoff.held_pages
    return Told(handoff.lease.tag, pages, prompt_tokens, verify.first_token, verify.payload_digest)
