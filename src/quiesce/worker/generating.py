"""What the workers that generate share: a batch, and what it says to the requests' routers."""

from __future__ import annotations

import logging

from quiesce.ids import RequestId
from quiesce.kv.runs import Pages
from quiesce.protocol.admission import admit_decode
from quiesce.protocol.dispatch import Failed, Tokens
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Failure
from quiesce.telemetry.logs import ids
from quiesce.worker.batch import Batch
from quiesce.worker.headroom import growth_pages, leaves_headroom
from quiesce.worker.parts import Parts
from quiesce.worker.process import WorkerProcess
from quiesce.worker.request import Request
from quiesce.worker.sequence import Generation, Sequence, generation_of, shaping_for

log = logging.getLogger(__name__)


class GeneratingWorker(WorkerProcess):
    """A decode or aggregated worker. Subclasses say where the batch's sequences come from."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.batch = Batch(
            parts.engine, parts.pool, parts.allocator, parts.compute, self.settings.max_running_requests, self
        )

    def admitted(self, request: Request) -> Generation:
        """What the request asks of generation, if it fits (rule 10). Raises RequestRejected."""
        max_tokens = admit_decode(request.prompt_tokens, request.submit.max_tokens, self.parts.limits)
        self.check_room(request.prompt_tokens)
        if request.constraint is not None:
            request.constraint.when_ready(self.batch.wake)
        return generation_of(request, max_tokens, self.parts.engine.config.eos_token_ids)

    def tell_failed(self, request: RequestId, failure: Failure) -> None:
        """The request's last word to its router."""
        self.tell(request, Failed(request, failure))
        self.forget(request)

    def may_take(self, n_pages: int, request: Request, generation: Generation) -> bool:
        """Whether a prompt may have its pages without starving who runs, or will run before it, of theirs."""
        page_size, most = self.settings.page_size, self.settings.headroom_tokens
        whole = self.parts.pool.layout.pages_for(request.prompt_tokens)
        own = growth_pages(request.prompt_tokens, whole, min(generation.max_tokens - 1, most), page_size)
        others = self.promised_pages() if self.has_others() else None
        return leaves_headroom(self.parts.allocator.available_pages, n_pages, own, others)

    def has_others(self) -> bool:
        """Whether anybody has pages that will grow."""
        return self.batch.running > 0

    def promised_pages(self) -> int:
        """What others will grow by, within the tokens that are promised to each."""
        return self.batch.growth_pages(self.settings.headroom_tokens)

    def begin(self, request: Request, sequence: Sequence, first_token: int, told: TokenLogprobs | None) -> None:
        """Let a sequence whose context is there join the batch; one whose shaping cannot be made fails alone."""
        try:
            sequence.shaping = shaping_for(request, self.parts.engine.config)
        except Exception as error:
            self.batch.refuse(sequence, error)
        else:
            self.batch.begin(sequence, first_token, told)

    # ------------------------------------------------------------ what the batch says

    def emit(self, sequence: Sequence, tokens: Tokens) -> None:
        self.tell(sequence.request, tokens)
        if tokens.finish:
            self.forget(sequence.request)

    def fail(self, sequence: Sequence, failure: Failure, error: Exception | None = None) -> None:
        if error is not None:
            self.note_compute_error(sequence.request, error)
        if sequence.tainted:
            self.telemetry.inc("quiesce_tag_mismatches", where="decode")
            about = ids(request=sequence.request, attempt=sequence.attempt, pages=len(sequence.pages))
            log.error("a page of a running context lost its tag: its pages are quarantined", extra=about)
        self.tell_failed(sequence.request, failure)

    def keep(self, sequence: Sequence) -> Pages:
        """Nothing, unless a subclass keeps answers: cached tokens count alike with and without a hand-off."""
        return sequence.own_pages

    def lease_unused(self, sequence: Sequence) -> None:
        """Nothing was leased, unless a subclass leases."""

    def stepped(self) -> None:
        self.announce()
