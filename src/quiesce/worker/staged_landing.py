"""Staged landing: writes land in memory of its own, are copied to the pool, and the copy is verified (section 6).

No transport is told of the pool, so nothing remote can ever write to it: a failed hand-off's context pages come back
at once, and what awaits a proof is landing pages. The copy is this process's own, on a thread beside the engine's;
pages that it reads or writes are given back when it has ended, whatever becomes of the hand-off meanwhile (rule 16).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from quiesce.errors import OutOfPages, invariant
from quiesce.integrity.coverage import check_payload, check_stamps
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.kv.runs import copy_runs
from quiesce.kv.storage import Pool, copy_pages
from quiesce.protocol.messages import Failure, Lease
from quiesce.protocol.receiver_io import Verify
from quiesce.telemetry.metrics import Telemetry
from quiesce.worker.handoff import Handoff, Places
from quiesce.worker.landing import Then, give_back_context, told_of
from quiesce.worker.landing_memory import LandingSpace, Window, memory_of
from quiesce.worker.seats import Seats

STATES = ("free", "reserved", "held", "quarantined")
"""Of a landing page: nobody ever reads it in place, so it is never used nor cached."""


class StagedLanding:
    """`changed` is called when pages came back otherwise than by `release`."""

    def __init__(
        self,
        space: LandingSpace,
        pool: Pool,
        allocator: PageAllocator,
        telemetry: Telemetry,
        changed: Callable[[], None],
    ) -> None:
        self._landing = space.allocator
        self._memory = memory_of(space)
        self.mode = self._memory.mode
        self._pool = pool
        self._allocator = allocator
        self._telemetry = telemetry
        self._changed = changed
        self._seats = Seats(space.seats)
        self._copying: dict[Handoff, list[Callable[[], None]]] = {}  # and what waits for the end of its copy
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="landing")

    # ------------------------------------------------------------ reservations

    @property
    def free_seats(self) -> int:
        return self._seats.free

    def has_room_for(self, n_pages: int) -> bool:
        return n_pages <= min(self._allocator.usable_pages, self._landing.usable_pages)

    def take(self, n_pages: int, owner: str) -> Places:
        """Landing pages and context pages together: who has one never waits for the other, so nobody waits in a ring.

        Context pages are taken now so that a commit, which gives landing pages back, never waits for anything.
        """
        if n_pages > self._landing.free_pages:
            raise OutOfPages(f"{n_pages} landing pages are needed and {self._landing.free_pages} are free")
        context = self._allocator.allocate(n_pages, owner, PageState.RESERVED)
        return Places(self._landing.allocate(n_pages, owner, PageState.RESERVED), context, self._seats.take())

    def give_up(self, places: Places) -> None:
        self._allocator.release(places.context.pages)
        self._landing.release(places.lease.pages)
        self._seats.give_back(places.seat)

    def published(self, places: Places) -> Lease:
        return self._memory.published(places.lease, places.seat)

    # ------------------------------------------------------------ verification

    def verify(self, handoff: Handoff, verify: Verify, then: Then) -> None:
        """Copy to private pages, then look at the copy: what is checked cannot be written any more by anybody."""
        invariant(bool(verify.payload_digest), "read_own", "staged landing needs the payload's digest")
        self._copying[handoff] = []
        landed, loop = self._memory.window(handoff.lease, handoff.seat), asyncio.get_running_loop()
        copied = loop.run_in_executor(self._thread, self._copy_and_check, landed, handoff, verify)
        since_s = time.monotonic()
        copied.add_done_callback(lambda done: self._copied(handoff, since_s, done, then))

    def _copy_and_check(self, landed: Window, handoff: Handoff, verify: Verify) -> Failure | None:
        """In the landing thread. Each word of the landing pages is read once; the digest is of what was read."""
        own = handoff.own_pages
        copy_pages(landed.pool, self._pool, copy_runs(landed.pages, own))
        told = told_of(handoff, verify, self._pool.layout)
        failure = check_stamps(landed.pool, landed.pages, landed.slot, told)
        failure = failure or check_payload(self._pool, own, verify.payload_digest)
        self._pool.stamp(own, handoff.context.tag)
        return failure

    def _copied(self, handoff: Handoff, since_s: float, done: asyncio.Future[Failure | None], then: Then) -> None:
        if done.cancelled():
            return  # this life is over, and its memory with it
        self._telemetry.observe("quiesce_landing_seconds", time.monotonic() - since_s)
        for give_back in self._copying.pop(handoff):
            give_back()
        then(done.result())

    # ------------------------------------------------------------ ends

    def hold(self, handoff: Handoff) -> None:
        """Nothing remote can write to the context's pages: they need no proof."""
        self._landing.mark(handoff.lease.pages, PageState.HELD)
        self._when_copied(handoff, self._free_context)

    def quarantine(self, handoff: Handoff) -> None:
        self._landing.mark(handoff.lease.pages, PageState.QUARANTINED)

    def commit(self, handoff: Handoff) -> None:
        self._free_lease(handoff)

    def release(self, handoff: Handoff) -> None:
        if handoff.is_committed:
            give_back_context(handoff, self._allocator)
        else:
            self._when_copied(handoff, self._free_lease)

    def _when_copied(self, handoff: Handoff, give_back: Callable[[Handoff], None]) -> None:
        if handoff in self._copying:
            self._copying[handoff].append(lambda: give_back(handoff))
        else:
            give_back(handoff)

    def _free_context(self, handoff: Handoff) -> None:
        give_back_context(handoff, self._allocator)
        self._changed()

    def _free_lease(self, handoff: Handoff) -> None:
        self._memory.reclaim(handoff.lease)
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

    @property
    def is_busy(self) -> bool:
        return bool(self._copying)

    def close(self) -> None:
        """Wait for the copy at work; no other begins."""
        self._thread.shutdown(wait=True, cancel_futures=True)
