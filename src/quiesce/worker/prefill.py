"""The prefill worker: admits prompts, computes them when decode awaits them, lets their pages out."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from quiesce.control.frames import pack
from quiesce.engine.engine import Aborted
from quiesce.errors import InvariantBroken, OutOfPages, RequestRejected
from quiesce.ids import AttemptKey, Peer, RequestId
from quiesce.kv.allocator import PageState
from quiesce.protocol.admission import admit_prefill
from quiesce.protocol.dispatch import Accepted, Failed, HandedOff, Load, RoomView
from quiesce.protocol.messages import Envelope, Failure, Fault, Progress
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.sender_io import Arrived, Ended, Heard, Refused
from quiesce.worker.abort_clock import AbortClock
from quiesce.worker.decode_streams import DecodeStreams
from quiesce.worker.greeting import hello_of, transport_facts
from quiesce.worker.job import Job
from quiesce.worker.outlet import MakeOutlet, PrefillInput
from quiesce.worker.parts import Parts
from quiesce.worker.priority_queue import PriorityQueue
from quiesce.worker.process import WorkerProcess
from quiesce.worker.prompt import Chunk, Prompt
from quiesce.worker.request import Request, rejection

NO_PREFIX = Failure("held_tokens_refused", "Decode says that it holds a prefix of no whole pages.", Fault.DECODE)
COMPUTE_FAILED = Failure("compute_failed", "Computing the prompt failed on this worker.", Fault.PREFILL)


class PrefillWorker(WorkerProcess):
    """Owns the source pages, their jobs, and the outlet through which they leave (one rank's machine)."""

    def __init__(self, parts: Parts, make_outlet: MakeOutlet) -> None:
        super().__init__(parts)
        self.jobs: dict[RequestId, Job] = {}
        self._queue: PriorityQueue[RequestId, Job] = PriorityQueue()
        self._wake = asyncio.Event()
        self._chunk_began_s: float | None = None
        self._aborts = AbortClock(self.telemetry)
        self.outlet = make_outlet(self, self.trace.record)
        self.streams = DecodeStreams(parts, self.outlet, self)

    # ------------------------------------------------------------ the door

    def admit(self, request: Request) -> None:
        admit_prefill(request.prompt_tokens, self.parts.limits)
        self.check_room(request.prompt_tokens)
        if self._queued() >= self.settings.max_queue:
            raise RequestRejected("Too many requests wait at prefill.", code="queue_full", status=429)
        self.jobs[request.id] = Job(request)
        self.tell(request.id, Accepted(request.id))
        self.feed(Arrived(request.id, request.room, request.digest))

    def _queued(self) -> int:
        """Requests that wait or are at work. What is lent, or in quarantine, waits for no turn here."""
        return sum(not (job.poisoned or job.lent_to) for job in self.jobs.values())

    def refused(self, request: Request, failure: Failure) -> None:
        """Its destination may be on its way here: whoever asks is told (rule 8)."""
        self.feed(Refused(request.room, request.digest, failure))

    def holds(self, request: RequestId) -> bool:
        return request in self.jobs

    def abandon(self, request: RequestId, failure: Failure) -> None:
        if request in self.jobs:
            self.feed(Ended(request, failure))

    # ------------------------------------------------------------ the machine

    def feed(self, event: PrefillInput) -> None:
        if isinstance(event, Heard):
            self._aborts.heard(event.envelope)
        self.advance(self.outlet.feed, event)

    def send(self, envelope: Envelope) -> None:
        if isinstance(envelope.body, Progress) and self._is_stuck():
            return  # as if it were lost: decode's clock goes on
        self._aborts.replied(envelope)
        self.streams.send(envelope)

    def breach(self, decode: Peer, problem: str) -> None:
        self.streams.breach(decode, problem)

    def start_compute(self, job: Job, held_tokens: int) -> None:
        """Queue a bound prompt. What decode holds of it is computed here all the same, or cached, but not sent."""
        job.held_pages, rest = divmod(held_tokens, self.settings.page_size)
        if rest or held_tokens >= job.request.prompt_tokens:
            self.feed(Ended(job.request.id, NO_PREFIX))
            return
        self._queue.put(job.request.id, job, job.request.submit.priority)
        if job.request.constraint is not None:
            job.request.constraint.when_ready(self._wake.set)
        self._wake.set()

    def request_failed(self, request: RequestId, failure: Failure) -> None:
        job = self.jobs[request]
        job.stop()
        if not job.poisoned:
            self.parts.allocator.mark(job.own_pages, PageState.HELD)
        self.telemetry.spans.record(request, "prefill", job.started_s, code=failure.code)
        self.tell(request, Failed(request, failure))
        self.forget(request)

    def request_done(self, request: RequestId) -> None:
        job = self.jobs[request]
        self.telemetry.spans.record(request, "prefill", job.started_s, tokens=job.request.prompt_tokens)
        self.tell(request, HandedOff(request))
        self.forget(request)

    def source_poisoned(self, key: AttemptKey) -> None:
        """What has an unknown fate may read the source for ever: quarantined until a proof, or the end of this life."""
        for job in self.jobs.values():
            if (key in job.places or key in job.lent_to) and job.reader is not None:
                job.poisoned = True
                self.parts.allocator.mark(job.own_pages, PageState.QUARANTINED)
                job.reader.condemn()

    def cache_source(self, job: Job) -> None:
        """All of it landed: full pages stay for prompts that begin alike.

        Other writes may read them from now on. None is freed meanwhile: each of those has a job, and its job a reader.
        """
        if job.reader is not None and job.pages is not None:
            submit = job.request.submit
            job.own_pages = self.parts.prefixes.deposit(job.reader, submit.salt, submit.token_ids, job.pages)

    def free_source(self, job: Job, proof: Proof) -> None:
        """Free the source pages, unless the engine still writes them: then when its chunk ends (rule 16)."""
        job.release = proof
        if not job.computing:
            self._free(job, proof)

    def _free(self, job: Job, proof: Proof) -> None:
        del self.jobs[job.request.id]
        self._queue.remove(job.request.id)
        if job.reader is not None:
            job.reader.leave()
        self.parts.allocator.release(job.own_pages)
        self.telemetry.inc("quiesce_held_page_seconds", job.charge())
        self.telemetry.inc("quiesce_releases", proof=proof.value)
        if job.stopped_s is not None and job.pages is not None:
            about = {"proof": proof.value, "pages": len(job.own_pages)}
            self.telemetry.spans.record(job.request.id, "source hold", job.stopped_s, **about)
        self._wake.set()

    # ------------------------------------------------------------ computing

    async def compute_prompts(self) -> None:
        """For ever: take the first bound prompt and compute it. Nobody passes one that waits for pages.

        One whose grammar is still being compiled is passed: its last chunk would have to wait, and the engine with it.
        Only prompts with a destination queue here, so no page of ours waits for pages of decode's.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (job := self._queue.first_that(_can_draw)) and self._take_pages(job):
                self._queue.remove(job.request.id)
                await self._compute(job)

    def _take_pages(self, job: Job) -> bool:
        """Give the prompt its pages. False when they are not free, or when it can never have them and was ended."""
        if not self.has_room_for(job.request.prompt_tokens):
            self.feed(Ended(job.request.id, self.no_room()))
            return False
        reader = self.read_prefix(job.request)
        n_pages = self.parts.pool.layout.pages_for(job.request.prompt_tokens) - len(reader.pages)
        try:
            own = self.parts.allocator.allocate(n_pages, job.request.id, PageState.USED).pages
        except OutOfPages:
            reader.leave()
            return False
        job.begin(reader, own)
        self.count_prefix(reader)
        return True

    async def _compute(self, job: Job) -> None:
        job.computing, began_s = True, time.monotonic()
        self._chunk_began_s = began_s
        failure: Failure | None = None
        try:
            await self._run_chunks(job)
        except Aborted:
            pass
        except InvariantBroken:
            raise
        except RequestRejected as error:
            failure = rejection(error, Fault.CLIENT)
        except Exception as error:
            self.note_compute_error(job.request.id, error)
            failure = COMPUTE_FAILED
        job.computing, self._chunk_began_s = False, None
        if job.stopped_s is not None and job.stopped_s >= began_s:
            self.telemetry.observe("quiesce_remaining_compute_seconds", job.held_s)
        if failure is not None and job.request.id in self.jobs:
            self.feed(Ended(job.request.id, failure))
        if job.release is not None and job.request.id in self.jobs:
            self._free(job, job.release)
        self.announce()

    async def _run_chunks(self, job: Job) -> None:
        if job.stopped or job.prompt is None:
            return
        parts, settings = self.parts, self.settings
        digest = settings.digest != "off"
        chunks = job.prompt.compute(parts.engine, parts.pool, parts.compute, settings.max_prefill_tokens, digest=digest)
        async with aclosing(chunks):
            async for chunk in chunks:
                self._chunk_began_s = time.monotonic()
                if job.stopped or job.release is not None:
                    return
                self._chunk_computed(job, job.prompt, chunk)

    def _chunk_computed(self, job: Job, prompt: Prompt, chunk: Chunk) -> None:
        job.payload_digest = chunk.payload_digest
        self.tell_prompt(job.request, chunk)  # before decode can hear that the prompt is complete
        self.outlet.computed(job, prompt, chunk)

    def _is_stuck(self) -> bool:
        """The engine has been at one chunk for so long that nobody can say it will ever end."""
        began_s = self._chunk_began_s
        return began_s is not None and time.monotonic() - began_s > self.settings.handoff_timeout_s

    # ------------------------------------------------------------ views

    def metrics(self) -> str:
        jobs = self.jobs.values()
        waiting = sum(job.pages is None and job.request.id not in self._queue for job in jobs)
        self.telemetry.set("quiesce_waiting_handoffs", waiting)
        self.telemetry.inc("quiesce_held_page_seconds", sum(job.charge() for job in jobs))
        self.telemetry.set("quiesce_oldest_hold_seconds", max((job.held_s for job in jobs), default=0.0))
        self.outlet.export_refusals()
        return super().metrics()

    def hello(self) -> bytes:
        return pack(hello_of(self.parts, self.outlet.capabilities))

    def facts(self) -> tuple[tuple[str, str], ...]:
        return (*super().facts(), *transport_facts(self.settings, self.outlet.capabilities))

    def load(self) -> Load:
        computing = sum(job.computing for job in self.jobs.values())
        free_tokens = self.parts.allocator.available_pages * self.settings.page_size
        reason = self.unready_reason()
        queued = self._queued()
        waiting = max(0, queued - computing)
        return Load(computing, waiting, free_tokens, ready=not reason, reason=reason, queued=queued)

    def rooms(self) -> tuple[RoomView, ...]:
        now_s = time.monotonic()
        return tuple(
            RoomView(
                job.request.id,
                job.attempt,
                job.state,
                0 if job.pages is None else len(job.pages),
                now_s - job.started_s,
                tuple(str(key.decode) for key in sorted(job.lent_to)),
            )
            for job in self.jobs.values()
        )

    def is_quiet(self) -> bool:
        return all(job.poisoned for job in self.jobs.values())

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Serve until cancelled."""
        self.outlet.start()
        try:
            await self.compute_prompts()
        finally:
            self.outlet.stop()

    def close(self) -> None:
        self.streams.close()
        self.links.close()

    def join(self) -> None:
        """End the threads. After it no source page is read nor written."""
        self.outlet.close()
        self.parts.join()


def _can_draw(job: Job) -> bool:
    return job.request.can_draw
