"""The incident's second path, on purpose: prefill gives up after the hand-off began, and says that it is done."""

from __future__ import annotations

import numpy as np

from quiesce.protocol.sender_io import ChunkComputed
from quiesce.worker.job import Job
from quiesce.worker.prefill import PrefillWorker
from quiesce.worker.prompt import Prompt


class StubPrefill(PrefillWorker):
    """A prompt that can never fit the pool is reported as complete although not one of its pages was written."""

    def has_room_for(self, prompt_tokens: int) -> bool:
        """Nothing is asked at this door, as in the incident."""
        return True

    def _take_pages(self, job: Job) -> bool:
        n_pages = self.parts.pool.layout.pages_for(job.request.prompt_tokens)
        if n_pages <= self.parts.pool.pages:
            return super()._take_pages(job)
        job.prompt = Prompt(job.request, np.empty(0, np.int32))
        job.stopped = True
        self.feed(ChunkComputed(job.request.id, 0, 0, last=True, first_token=1))
        return True
