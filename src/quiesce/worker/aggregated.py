"""One worker that does both halves on one pool: nothing is handed off, so there is nothing to prove."""

from __future__ import annotations

from collections.abc import AsyncIterator

from quiesce.engine.engine import Aborted
from quiesce.errors import InvariantBroken, OutOfPages, RequestRejected
from quiesce.ids import RequestId
from quiesce.protocol.dispatch import Accepted, Load, RoomView
from quiesce.protocol.messages import Failure, Fault
from quiesce.worker.generating import GeneratingWorker
from quiesce.worker.parts import Parts
from quiesce.worker.priority_queue import PriorityQueue
from quiesce.worker.prompt import Chunk, Prompt
from quiesce.worker.request import Request, rejection
from quiesce.worker.sequence import Generation, Sequence

COMPUTE_FAILED = Failure("compute_failed", "Computing the prompt failed on this worker.", Fault.QUIESCE)


class LocalPrompt:
    """A prompt that waits for its turn or is being computed. `ended`: its client left."""

    def __init__(self, request: Request, generation: Generation) -> None:
        self.request = request
        self.sequence = Sequence(request.id, generation, request.prompt_tokens)
        self.prompt: Prompt | None = None
        self.chunks: AsyncIterator[Chunk] | None = None
        self.ended = False


class AggregatedWorker(GeneratingWorker):
    """Prompts are computed chunk by chunk between decode steps, so that a long prompt stalls nobody for long."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._waiting: PriorityQueue[RequestId, LocalPrompt] = PriorityQueue()
        self._current: LocalPrompt | None = None

    def admit(self, request: Request) -> None:
        generation = self.admitted(request)
        if self._prompts >= self.settings.max_queue:
            raise RequestRejected("Too many requests wait.", code="queue_full", status=429)
        self._waiting.put(request.id, LocalPrompt(request, generation), request.submit.priority)
        self.tell(request.id, Accepted(request.id))
        self.batch.wake()

    def abandon(self, request: RequestId, failure: Failure) -> None:
        if self._end_prompt(request) or self.batch.end(request):
            self.tell_failed(request, failure)
        self.batch.wake()

    def _end_prompt(self, request: RequestId) -> bool:
        """Leave at once, or, when the engine may be at work on its pages, at the end of its chunk."""
        local = self._waiting.remove(request)
        if local is None and self._current is not None and self._current.request.id == request:
            local = self._current
        if local is None or local.ended:
            return False
        local.ended = True
        if local.prompt is not None:
            local.prompt.abort.aborted = True
        return True

    def holds(self, request: RequestId) -> bool:
        current = self._current is not None and self._current.request.id == request
        return current or request in self.batch or request in self._waiting

    @property
    def _prompts(self) -> int:
        return len(self._waiting) + (self._current is not None)

    # ------------------------------------------------------------ prompts

    async def _advance_prompt(self) -> bool:
        """Compute one chunk of the prompt whose turn it is. False when none waits, or none fits the pool now."""
        local = self._current or self._next_prompt()
        if local is None:
            return False
        self._current = local
        chunk = await self._next_chunk(local)
        if chunk is None or local.ended:
            self._drop(local)
            return True
        self.tell_prompt(local.request, chunk)
        if chunk.last:
            self._current = None
            self._cache(local)
            self.begin(local.request, local.sequence, chunk.first_token, chunk.first_logprobs)
        return True

    def _next_prompt(self) -> LocalPrompt | None:
        """Start the first prompt that waits, but not for its grammar. What was started goes on, whoever comes."""
        while (local := self._waiting.first_that(_can_draw)) is not None:
            if self.has_room_for(local.request.prompt_tokens):
                return self._waiting.remove(local.request.id) if self._start(local) else None
            self._waiting.remove(local.request.id)
            self.tell_failed(local.request.id, self.no_room())
        return None

    async def _next_chunk(self, local: LocalPrompt) -> Chunk | None:
        """None when there is none: the client left, or computing failed, which ends this request only."""
        try:
            return None if local.chunks is None else await anext(local.chunks)
        except Aborted:
            return None
        except InvariantBroken:
            raise
        except RequestRejected as error:
            failure = rejection(error, Fault.CLIENT)
        except Exception as error:
            self.note_compute_error(local.request.id, error)
            failure = COMPUTE_FAILED
        if not local.ended:
            self.tell_failed(local.request.id, failure)
        return None

    def _start(self, local: LocalPrompt) -> bool:
        parts = self.parts
        if self.batch.retracted or not self._take_pages(local):
            return False
        local.prompt = Prompt(local.request, local.sequence.pages, local.sequence.borrowed_pages)
        local.chunks = local.prompt.compute(
            parts.engine, parts.pool, parts.compute, self.settings.max_prefill_tokens, digest=False
        )
        return True

    def _take_pages(self, local: LocalPrompt) -> bool:
        """Cached pages for the beginning of the prompt, new ones for the rest. False when these are not there now."""
        reader, sequence = self.read_prefix(local.request), local.sequence
        n_pages = self.parts.pool.layout.pages_for(local.request.prompt_tokens) - len(reader.pages)
        try:
            if not self.may_take(n_pages, local.request, sequence.generation):
                raise OutOfPages(f"{n_pages} pages are wanted")
            pages, tag = self.batch.allocate(n_pages, local.request.id)
        except OutOfPages:
            reader.leave()
            return False
        sequence.own(reader.pages, self.parts.allocator.tag_of(reader.pages))
        sequence.own(pages, tag)
        sequence.reader, sequence.borrowed_pages = reader, len(reader.pages)
        sequence.cached_tokens = len(reader.pages) * self.settings.page_size
        self.count_prefix(reader)
        return True

    def _cache(self, local: LocalPrompt) -> None:
        """The prompt is computed: its full pages may be shared now. One that failed never gets here (rule 12)."""
        submit, sequence = local.request.submit, local.sequence
        if sequence.reader is not None:
            self.parts.prefixes.insert(sequence.reader, submit.salt, submit.token_ids, sequence.pages)
            sequence.borrowed_pages = len(sequence.reader.pages)

    def _drop(self, local: LocalPrompt) -> None:
        self._current = None
        sequence = local.sequence
        self.parts.allocator.release(sequence.pages[sequence.borrowed_pages :])
        if sequence.reader is not None:
            sequence.reader.leave()
        self.announce()

    # ------------------------------------------------------------ views and life

    def load(self) -> Load:
        free_tokens = self.parts.allocator.available_pages * self.settings.page_size
        reason = self.unready_reason()
        waiting = self._prompts
        return Load(self.batch.running, waiting, free_tokens, ready=not reason, reason=reason, queued=waiting)

    def rooms(self) -> tuple[RoomView, ...]:
        return ()

    def is_quiet(self) -> bool:
        return not (self._prompts or self.batch.running)

    async def run(self) -> None:
        """Compute until cancelled."""
        while True:
            advanced = await self._advance_prompt()
            if not await self.batch.step() and not advanced:
                self.announce()
                await self.batch.idle()

    def close(self) -> None:
        self.links.close()

    def join(self) -> None:
        """End the engine thread."""
        self.parts.join()


def _can_draw(local: LocalPrompt) -> bool:
    return local.request.can_draw
