"""A simulated prefill worker: production's machine of each rank, its door, its pages; this file and `outlets` obey."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from quiesce.errors import OutOfPages, RequestRejected
from quiesce.ids import AttemptKey, Peer, RequestId
from quiesce.kv.allocator import PageState
from quiesce.lab.swarm import signs
from quiesce.lab.swarm.ground import Ground, life_name, rank_name
from quiesce.lab.swarm.job import Job
from quiesce.lab.swarm.loop import Clocks, Life
from quiesce.lab.swarm.memory import Memory
from quiesce.lab.swarm.outlets import AnyOutlet, PullOutlet, PushOutlet
from quiesce.lab.swarm.submission import OUT_OF_TIME, Submission
from quiesce.protocol import admission
from quiesce.protocol import sender_io as io
from quiesce.protocol.admission import Limits
from quiesce.protocol.messages import Envelope, Failure, Fault
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.record import SenderState
from quiesce.worker.driver import Driver
from quiesce.worker.priority_queue import PriorityQueue
from quiesce.worker.timers import backoff_s

if TYPE_CHECKING:
    from quiesce.lab.swarm.cluster import Cluster
    from quiesce.worker.outlet import PrefillInput

NO_PREFIX = Failure("held_tokens_refused", "Decode says that it holds a prefix of no whole pages.", Fault.DECODE)
NO_ROOM = Failure("pool_quarantined", "Pages in quarantine leave no room for this request.", Fault.PREFILL, 503)
PROGRESS_S, PROGRESS_SHARE = 1.0, 0.25


class PrefillRank:
    """One rank of a prefill worker: a machine, a pool, and an engine that computes one prompt at a time."""

    def __init__(self, ground: Ground, cluster: Cluster, worker: PrefillWorker, rank: int) -> None:
        p = ground.p
        self.me = Peer(rank, worker.incarnation)
        self.life, self.worker = worker.life, worker
        self.name = rank_name(worker.name, rank, p.prefill_ranks)
        title = rank_name(worker.title, rank, p.prefill_ranks)
        audit = ground.checks if p.audited else None
        self.memory = Memory(title, worker.number, p.prefill_pages, p.page_size, 1, p.prefix_cache, audit)
        self.jobs: dict[RequestId, Job] = {}
        self.aside_jobs = 0
        self._ground, self._cluster = ground, cluster
        self._queue: PriorityQueue[RequestId, Job] = PriorityQueue()
        self._computing: Job | None = None
        self.outlet: AnyOutlet = (PullOutlet if cluster.pulls else PushOutlet)(ground, cluster, self)
        self._driver: Driver[SenderState, Any, Any] = Driver(
            self.outlet.first, self.outlet.step, self._obey, self._record
        )
        self._do: dict[type, Callable[[Any], None]] = {
            io.Reply: self._reply,
            io.StartCompute: self._start_compute,
            io.StopCompute: self._stop_compute,
            io.ReleaseSource: self._release_source,
            io.PrefillFailed: self._failed,
            io.CacheSource: self._cache_source,
            io.PrefillDone: self._done,
            io.StartSenderTimer: self._start_timer,
            io.StopSenderTimers: self._stop_timers,
            io.SenderIgnored: self._ignored,
            **self.outlet.do,
        }

    # ------------------------------------------------------------ the machine

    @property
    def state(self) -> SenderState:
        return self._driver.state

    def feed(self, fact: PrefillInput) -> None:
        if not self.life.dead:
            self._driver.feed(fact)

    def _obey(self, effect: Any) -> None:
        self._do[type(effect)](effect)

    def _record(self, fact: Any, effects: Iterable[Any]) -> None:
        self._ground.loop.note(self.worker.index + 64)
        if self._ground.story is not None:
            self._ground.tell_step(self.memory.where, fact, effects)

    def hear(self, envelope: Envelope) -> None:
        signs.heard_by_prefill(self._ground.marks, self.state, envelope)
        self.outlet.hears(envelope)
        self.feed(io.Heard(envelope))

    def _reply(self, effect: io.Reply) -> None:
        envelope = effect.envelope
        self.outlet.says(envelope)
        self._cluster.network.send(envelope, envelope.to.incarnation, self.me.incarnation, False)

    # ------------------------------------------------------------ requests

    def admit(self, submission: Submission) -> None:
        self.jobs[submission.request] = Job(submission)
        self.feed(io.Arrived(submission.request, submission.room, submission.text.digest, self._ground.p.decode_ranks))

    def end(self, request: RequestId, failure: Failure) -> None:
        if request in self.jobs:
            self.feed(io.Ended(request, failure))

    def _failed(self, effect: io.PrefillFailed) -> None:
        job = self.jobs[effect.request]
        self._ground.checks.no_poison.cached(not job.cached, self.name, job.submission.ask.number)
        job.stopped = True
        if not job.poisoned:
            self.memory.allocator.mark(job.own, PageState.HELD)
        self.worker.rank_failed(job.submission, effect.failure)

    def _done(self, effect: io.PrefillDone) -> None:
        self.worker.rank_done(self.jobs[effect.request].submission, self.me.rank)

    # ------------------------------------------------------------ computing

    def _start_compute(self, effect: io.StartCompute) -> None:
        job = self.jobs[effect.request]
        job.held, rest = divmod(effect.held_tokens, self._ground.p.page_size)
        if rest or effect.held_tokens >= job.submission.text.n_tokens:
            self.feed(io.Ended(effect.request, NO_PREFIX))
            return
        self._queue.put(effect.request, job, job.submission.ask.priority)
        self._wake()

    def _stop_compute(self, effect: io.StopCompute) -> None:
        self.jobs[effect.request].stopped = True

    def _wake(self) -> None:
        self._ground.loop.after(0.0, self.life, self._next)

    def _next(self) -> None:
        """Take the first bound prompt and compute it; nobody passes one that waits for pages."""
        while self._computing is None and self._queue:
            job = self._queue.first
            if not self._take_pages(job):
                return
            self._queue.remove(job.submission.request)
            if job.stopped:
                continue
            self._computing, job.computing = job, True
            self._announce_cached(job)
            self._schedule_chunk(job)

    def _take_pages(self, job: Job) -> bool:
        text, memory = job.submission.text, self.memory
        if len(text.labels) > memory.allocator.usable_pages:
            self.feed(io.Ended(job.submission.request, NO_ROOM))
            return False
        reader = memory.prefixes.read(text.salt, text.tokens)
        signs.shared(self._ground, memory, reader, text, "prefill")
        missing = len(text.labels) - len(reader.pages)
        try:
            own = memory.allocator.allocate(missing, job.submission.request, PageState.USED)
        except OutOfPages:
            reader.leave()
            return False
        job.reader, job.own = reader, own.pages
        job.pages = reader.pages.tolist() + own.pages.tolist()
        job.computed = len(reader.pages) * self._ground.p.page_size
        return True

    def _announce_cached(self, job: Job) -> None:
        """Cached pages that decode lacks are final already."""
        cached = 0 if job.reader is None else len(job.reader.pages)
        if cached > job.held:
            self._chunk(job, cached - job.held, last=False)

    def _schedule_chunk(self, job: Job) -> None:
        p = self._ground.p
        self._ground.loop.after(p.chunk_s / self.life.pace, self.life, self._chunk_done, job)

    def _chunk_done(self, job: Job) -> None:
        if not (job.stopped or job.proof):
            self._compute(job)
        if job.stopped or job.proof or job.computed >= job.submission.text.n_tokens:
            self._computing, job.computing = None, False
            if job.proof is not None:
                self._free(job, job.proof)
            self._next()
        else:
            self._schedule_chunk(job)

    def _compute(self, job: Job) -> None:
        """The context of a chunk's tokens is written into the source pages; whole pages are final."""
        text, p = job.submission.text, self._ground.p
        first = job.computed // p.page_size
        job.computed = min(job.computed + p.chunk_tokens, text.n_tokens)
        last = job.computed >= text.n_tokens
        end = len(text.labels) if last else job.computed // p.page_size
        self.memory.put(job.pages[first:end], [(0, label) for label in text.labels[first:end]])
        self._chunk(job, max(job.sent, end - job.held) - job.sent, last)

    def _chunk(self, job: Job, pages: int, last: bool) -> None:
        first, job.sent = job.sent, job.sent + pages
        token = job.submission.ask.number % 1000 if last else -1
        self.outlet.computed(job, first, pages, last, token)

    # ------------------------------------------------------------ sources

    def lends(self, job: Job, key: AttemptKey) -> None:
        """From now on decode may read its pages."""
        self.aside_jobs += not job.is_aside
        job.lent_to.add(key)

    def takes_back(self, job: Job, key: AttemptKey) -> None:
        """It may not any more."""
        if key in job.lent_to:
            job.lent_to.discard(key)
            self.aside_jobs -= not job.is_aside

    def poison(self, key: AttemptKey) -> None:
        """What has an unknown fate may read the source for ever."""
        for job in self.jobs.values():
            if key in job.places and job.reader is not None and not job.poisoned:
                self.aside_jobs += not job.is_aside
                job.poisoned = True
                self.memory.allocator.mark(job.own, PageState.QUARANTINED)
                job.reader.condemn()
        self._cluster.quarantined(self.worker)

    def _cache_source(self, effect: io.CacheSource) -> None:
        job = self.jobs[effect.request]
        text = job.submission.text
        self._ground.checks.no_poison.cached(self.outlet.may_cache(job), self.name, job.submission.ask.number)
        job.cached = True
        if job.reader is not None and job.pages:
            pages = np.array(job.pages, np.int32)
            job.own = self.memory.prefixes.deposit(job.reader, text.salt, text.tokens, pages)

    def _release_source(self, effect: io.ReleaseSource) -> None:
        checks, job = self._ground.checks, self.jobs[effect.request]
        checks.once.released(self.me.incarnation, effect.request, self.me.rank)
        reading = self._cluster.air.reading(self, effect.request, tuple(job.places))
        checks.no_wild_read.released(reading, self.name, job.submission.ask.number)
        self._ground.marks.hit(f"source released {effect.proof}")
        job.proof = effect.proof
        if not job.computing:
            self._free(job, effect.proof)

    def _free(self, job: Job, proof: Proof) -> None:
        before = self.worker.queued
        del self.jobs[job.submission.request]
        self.aside_jobs -= job.is_aside
        job.lent_to.clear()
        self._cluster.queue_changed(before, self.worker.queued)
        self._queue.remove(job.submission.request)
        if job.reader is not None:
            job.reader.leave()
        self.memory.allocator.release(job.own)
        self._wake()

    # ------------------------------------------------------------ clocks

    def _start_timer(self, effect: io.StartSenderTimer) -> None:
        fact = io.SenderTimerFired(effect.subject, effect.timer)
        subject = (self.me.rank, effect.subject)
        self.worker.clocks.start(subject, effect.timer, self._delay_s(effect), self._fired, fact)

    def _fired(self, fact: io.SenderTimerFired) -> None:
        signs.prefill_clock(self._ground.marks, self.state, fact)
        self._driver.feed(fact)

    def _delay_s(self, effect: io.StartSenderTimer) -> float:
        p = self._ground.p
        if effect.timer is io.SenderTimer.RESEND:
            return backoff_s(p.resend_s, effect.round)
        if effect.timer is io.SenderTimer.PROGRESS:
            return min(PROGRESS_S, PROGRESS_SHARE * p.handoff_timeout_s)
        return p.handoff_timeout_s

    def _stop_timers(self, effect: io.StopSenderTimers) -> None:
        self.worker.clocks.stop((self.me.rank, effect.subject))

    def _ignored(self, effect: io.SenderIgnored) -> None:
        signs.ignored(self._ground.marks, effect.kind, effect.reason)


class PrefillWorker:
    """One life of a prefill worker. Its ranks act on one decision: failure is OR-ed, readiness AND-ed (rule 14)."""

    def __init__(self, ground: Ground, cluster: Cluster, index: int, number: int) -> None:
        p = ground.p
        self.index, self.number = index, number
        self.name = f"prefill {index}"
        self.incarnation = life_name("prefill", index, number)
        self.title = f"{self.name} ({self.incarnation})"
        self.life = Life(self.name, cluster.pace_of(self.name))
        self.clocks = Clocks(ground.loop, self.life)
        self.limits = Limits(p.context_tokens, p.prefill_pages * p.page_size)
        self._ground, self._cluster = ground, cluster
        self.ranks = [PrefillRank(ground, cluster, self, rank) for rank in range(p.prefill_ranks)]
        self.peers = tuple(rank.me for rank in self.ranks)
        self._done: dict[RequestId, set[int]] = {}

    def hear(self, envelope: Envelope) -> None:
        self.ranks[envelope.to.rank].hear(envelope)

    def submit(self, submission: Submission) -> None:
        """The router's half came."""
        try:
            self._admit(submission)
        except RequestRejected as error:
            self._refuse(submission, error)
            return
        number = submission.ask.number
        self._ground.checks.admission.let_in(submission.text.n_tokens, 0, self.limits, self.name, number)
        self._done[submission.request] = set()
        self._cluster.router.accepted(self, submission)
        if submission.timeout_s is not None:
            late = (submission, OUT_OF_TIME)
            self.clocks.start(submission.request, "deadline", submission.timeout_s, self.abandon, *late)
        for rank in self.ranks:
            rank.admit(submission)

    def _admit(self, submission: Submission) -> None:
        admission.admit_prefill(submission.text.n_tokens, self.limits)
        pages = len(submission.text.labels)
        if any(pages > rank.memory.allocator.usable_pages for rank in self.ranks):
            raise RequestRejected(NO_ROOM.message, code=NO_ROOM.code, status=503)
        if self.queued >= self._ground.p.max_queue:
            raise RequestRejected("Too many requests wait at prefill.", code="queue_full", status=429)

    def _refuse(self, submission: Submission, error: RequestRejected) -> None:
        known = any(submission.request in rank.state.requests for rank in self.ranks)
        self._ground.checks.no_stub.rejected(known, self.name, submission.ask.number)
        failure = Failure(error.code, error.message, Fault.PREFILL, error.status)
        for rank in self.ranks:
            rank.feed(io.Refused(submission.room, submission.text.digest, failure))
        self._cluster.router.rejected(self, submission, error)

    def abandon(self, submission: Submission, failure: Failure) -> None:
        for rank in self.ranks:
            rank.end(submission.request, failure)

    def rank_failed(self, submission: Submission, failure: Failure) -> None:
        """The first rank that fails fails them all."""
        if self._done.pop(submission.request, None) is None:
            return
        self.clocks.stop(submission.request)
        self._cluster.router.failed(self, submission, failure)
        self._ground.loop.after(0.0, self.life, self.abandon, submission, failure)

    def rank_done(self, submission: Submission, rank: int) -> None:
        done = self._done.get(submission.request)
        if done is None:
            return
        done.add(rank)
        if len(done) == len(self.ranks):
            del self._done[submission.request]
            self.clocks.stop(submission.request)
            self._cluster.router.handed_off(self, submission)

    @property
    def load(self) -> int:
        return self.queued

    @property
    def queued(self) -> int:
        """Requests that wait or are at work here; lent or in quarantine nobody waits for a turn."""
        return len(self.ranks[0].jobs) - self.ranks[0].aside_jobs

    @property
    def memories(self) -> list[Memory]:
        return [rank.memory for rank in self.ranks]

    pools = memories
    """All memory whose pages are counted."""
