"""Staged landing: writes land in memory of its own, are copied to the pool, and the copy is verified (section 6).

No transport is told of the pool, so nothing remote can ever write to it: a failed hand-off's context pages come back
at once, and what awaits a proof is landing pages (`staged_pages`). The copy is this process's own, on a thread beside
the engine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from quiesce.errors import invariant
from quiesce.integrity.coverage import check_payload, check_stamps
from quiesce.kv.allocator import PageAllocator
from quiesce.kv.runs import copy_runs
from quiesce.kv.storage import Pool, copy_pages
from quiesce.protocol.messages import Failure, Lease
from quiesce.protocol.receiver_io import Verify
from quiesce.telemetry.metrics import Telemetry
from quiesce.worker.handoff import Handoff, Places
from quiesce.worker.landing import Then, told_of
from quiesce.worker.landing_memory import LandingSpace, Window, memory_of
from quiesce.worker.staged_pages import StagedPages


class StagedLanding(StagedPages):
    """`changed` is called when pages came back otherwise than by `release`."""

    def __init__(
        self,
        space: LandingSpace,
        pool: Pool,
        allocator: PageAllocator,
        telemetry: Telemetry,
        changed: Callable[[], None],
    ) -> None:
        self._memory = memory_of(space)
        super().__init__(space.allocator, space.seats, allocator, self._memory.reclaim, changed)
        self.mode = self._memory.mode
        self._pool = pool
        self._telemetry = telemetry
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="landing")

    def published(self, places: Places) -> Lease:
        return self._memory.published(places.lease, places.seat)

    # ------------------------------------------------------------ verification

    def verify(self, handoff: Handoff, verify: Verify, then: Then) -> None:
        """Copy to private pages, then look at the copy: what is checked cannot be written any more by anybody."""
        invariant(bool(verify.payload_digest), "read_own", "staged landing needs the payload's digest")
        self.copy_begins(handoff)
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
        self.copy_ended(handoff)
        then(done.result())

    def close(self) -> None:
        """Wait for the copy at work; no other begins."""
        self._thread.shutdown(wait=True, cancel_futures=True)
