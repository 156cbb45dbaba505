"""A lender without rule 13, on purpose: source pages come back as soon as decode was told of them."""

from __future__ import annotations

from quiesce.ids import RequestId
from quiesce.kv.prefix_tree import NO_PAGES
from quiesce.worker.prefill import PrefillWorker


class HastyPrefill(PrefillWorker):
    """OFFER ends a hand-off here, as if who was told where to read had read."""

    def request_done(self, request: RequestId) -> None:
        super().request_done(request)
        job = self.jobs[request]
        if job.reader is not None:
            job.reader.leave()
            job.reader = None
        given, job.own_pages = job.own_pages, NO_PAGES
        self.parts.allocator.release(given)
        self._wake.set()
