"""A simulated decode worker: production's machine, door, headroom and pages; this file and `intakes` obey them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from quiesce.errors import RequestRejected
from quiesce.ids import Attempt, Peer, RequestId
from quiesce.kv.allocator import PageState
from quiesce.kv.runs import pack_runs
from quiesce.lab.swarm import signs
from quiesce.lab.swarm.batch import Batch, Sequence
from quiesce.lab.swarm.copying import Copier
from quiesce.lab.swarm.ground import Ground, life_name, rank_name
from quiesce.lab.swarm.intakes import AnyIntake, PullIntake, PushIntake
from quiesce.lab.swarm.landings import Landings
from quiesce.lab.swarm.leasing import Handoff, Leasing
from quiesce.lab.swarm.loop import Clocks, Life
from quiesce.lab.swarm.memory import Memory
from quiesce.lab.swarm.submission import NOT_COVERED, OUT_OF_TIME, Submission
from quiesce.lab.swarm.workload import Text
from quiesce.protocol import admission
from quiesce.protocol import receiver_io as io
from quiesce.protocol.admission import Limits
from quiesce.protocol.messages import Envelope, Failure, Fault, Lease
from quiesce.protocol.reasons import kind_of
from quiesce.worker.driver import Driver
from quiesce.worker.priority_queue import PriorityQueue
from quiesce.worker.timers import backoff_s

if TYPE_CHECKING:
    from quiesce.lab.swarm.cluster import Cluster
    from quiesce.worker.intake import DecodeInput

PAIR_LOST = Failure("pair_unavailable", "The prefill worker of this request was lost.", Fault.PREFILL, 503)
NO_ROOM = Failure("pool_quarantined", "Pages in quarantine leave no room for this request.", Fault.DECODE, 503)
ROWS_PER_RUNNING = 2


class DecodeWorker:
    """One life of a decode worker with all its ranks."""

    def __init__(self, ground: Ground, cluster: Cluster, index: int, number: int) -> None:
        p = ground.p
        self.index, self.number = index, number
        self.name = f"decode {index}"
        self.incarnation = life_name("decode", index, number)
        self.title = f"{self.name} ({self.incarnation})"
        self.life = Life(self.name, cluster.pace_of(self.name))
        self.clocks = Clocks(ground.loop, self.life)
        self.peers = tuple(Peer(rank, self.incarnation) for rank in range(p.decode_ranks))
        landing_tokens = p.landing_pages * p.page_size if p.landing == "staged" else 0
        self.limits = Limits(p.context_tokens, p.decode_pages * p.page_size, landing_tokens)
        self.memories = [self._memory(ground, rank) for rank in range(p.decode_ranks)]
        self.handoffs: dict[Attempt, Handoff] = {}
        self.batch = Batch(ground, self)
        self._ground, self._cluster = ground, cluster
        self.trusts = cluster.without.coverage
        seats = 2 * ROWS_PER_RUNNING * p.max_running
        self.landings = Landings(ground, self.memories, number, seats, self._pool_changed)
        self._copier = Copier(ground, self, self.landings.staged)
        self._leasing = Leasing(ground, self.memories, self.batch, self.landings.ranks)
        self._waiting: PriorityQueue[RequestId, Submission] = PriorityQueue()
        self._attempts: dict[RequestId, Attempt] = {}
        self._reserving: Handoff | None = None
        self.intake: AnyIntake = (PullIntake if cluster.pulls else PushIntake)(ground, cluster, self)
        self._driver: Driver[Any, Any, Any] = Driver(self.intake.first, self.intake.step, self._obey, self._record)
        self._do: dict[type, Callable[[Any], None]] = {
            io.Minted: self._minted,
            io.Send: self._send,
            io.Verify: self._verify,
            io.Cache: self._cache,
            io.Attach: self._attach,
            io.RequestFailed: self._request_failed,
            io.Hold: self._hold,
            io.Release: self._release,
            io.Quarantine: self._quarantine,
            io.StartTimer: self._start_timer,
            io.StopTimers: self._stop_timers,
            io.Ignored: self._ignored,
            **self.intake.do,
        }

    def _memory(self, ground: Ground, rank: int) -> Memory:
        p = ground.p
        audit = ground.checks if p.audited else None
        where = rank_name(self.title, rank, p.decode_ranks)
        return Memory(where, self.number, p.decode_pages, p.page_size, p.prefill_ranks, p.prefix_cache, audit)

    @property
    def pools(self) -> list[Memory]:
        """All memory whose pages are counted: the pools of all ranks, and what lies beside them."""
        return [*self.memories, *self.landings.memories]

    # ------------------------------------------------------------ the machine

    @property
    def state(self) -> Any:
        return self._driver.state

    def feed(self, fact: DecodeInput) -> None:
        if not self.life.dead:
            self._driver.feed(fact)

    def hear(self, envelope: Envelope) -> None:
        signs.heard_by_decode(self._ground.marks, self.state, envelope)
        self._driver.feed(io.Received(envelope))

    def _obey(self, effect: Any) -> None:
        self._do[type(effect)](effect)

    def _record(self, fact: Any, effects: Iterable[Any]) -> None:
        self._ground.loop.note(self.index)
        if self._ground.story is not None:
            self._ground.tell_step(self.title, fact, effects)

    # ------------------------------------------------------------ the door

    def submit(self, submission: Submission) -> None:
        """The router's half came."""
        try:
            most = self._admit(submission)
        except RequestRejected as error:
            known = self._knows(submission.request)
            self._ground.checks.no_stub.rejected(known, self.name, submission.ask.number)
            self._cluster.router.rejected(self, submission, error)
            return
        checks, number = self._ground.checks.admission, submission.ask.number
        checks.let_in(submission.text.n_tokens, most, self.limits, self.name, number)
        self._cluster.router.accepted(self, submission)
        self._waiting.put(submission.request, submission, submission.ask.priority)
        checks.within(len(self._waiting), self._ground.p.max_queue, "waiting requests", self.name)
        if submission.timeout_s is not None:
            late = (submission, OUT_OF_TIME)
            self.clocks.start(submission.request, "deadline", submission.timeout_s, self.abandon, *late)
        self._reserve_waiting()

    def _admit(self, submission: Submission) -> int:
        most = admission.admit_decode(submission.text.n_tokens, submission.max_tokens, self.limits)
        if not self._has_room_for(submission.text):
            raise RequestRejected(NO_ROOM.message, code=NO_ROOM.code, status=503)
        if not self._cluster.network.grants(self, submission.prefill):
            raise RequestRejected(PAIR_LOST.message, code=PAIR_LOST.code, status=503)
        if len(self._waiting) >= self._ground.p.max_queue:
            raise RequestRejected("Too many requests wait at decode.", code="queue_full", status=429)
        return most

    def has_flights(self, attempt: Attempt) -> bool:
        return bool(self._cluster.air.to(self.incarnation, attempt))

    def _has_room_for(self, text: Text) -> bool:
        return self.landings.has_room_for(len(text.labels))

    def _knows(self, request: RequestId) -> bool:
        known = request in self._attempts or request in self._waiting or request in self.batch.by_request
        return known or any(attempt.request == request for attempt in self.state.attempts.values())

    def abandon(self, submission: Submission, failure: Failure) -> None:
        """Somebody ends a request here."""
        request, before = submission.request, len(self._waiting)
        if self._waiting.remove(request) or self.batch.end(request):
            self.tell_failed(submission, failure)
        elif request in self._attempts:
            self.feed(io.Abandon(self._attempts[request], failure))
        self._cluster.queue_changed(before, len(self._waiting))
        self._reserve_waiting()

    def tell_failed(self, submission: Submission, failure: Failure) -> None:
        self.clocks.stop(submission.request)
        self._cluster.router.failed(self, submission, failure)

    # ------------------------------------------------------------ reservations

    def _reserve_waiting(self) -> None:
        if not self._waiting:
            return
        before = len(self._waiting)
        self._reserve_first()
        self._cluster.queue_changed(before, len(self._waiting))

    def _reserve_first(self) -> None:
        while self._waiting and self._may_reserve():
            submission = self._waiting.first
            trouble = self._trouble(submission)
            if trouble is not None:
                self._waiting.pop_first()
                self.tell_failed(submission, trouble)
                continue
            handoff = self._leasing.take(submission, self._under_way())
            if handoff is None:
                return
            self._waiting.pop_first()
            self._reserve(handoff)

    def _trouble(self, submission: Submission) -> Failure | None:
        if not self._cluster.network.grants(self, submission.prefill):
            return PAIR_LOST
        return None if self._has_room_for(submission.text) else NO_ROOM

    def _may_reserve(self) -> bool:
        rows = len(self._attempts) + self.batch.running
        if self.batch.retracted or rows >= ROWS_PER_RUNNING * self._ground.p.max_running:
            return False
        return self.landings.has_seats

    def _under_way(self) -> list[Submission]:
        return [self.handoffs[attempt].submission for attempt in self._attempts.values()]

    def _reserve(self, handoff: Handoff) -> None:
        submission, p = handoff.submission, self._ground.p
        self._reserving = handoff
        leases = tuple(
            Lease(part.lease.tag, len(part.places), pack_runs(np.array(part.places, np.int32)), part.seat)
            for part in handoff.parts
        )
        grants = self._cluster.network.grants(self, submission.prefill)
        tokens, held = submission.text.n_tokens, handoff.held * p.page_size
        self.feed(io.Reserve(submission.request, submission.room, submission.text.digest, leases, grants, tokens, held))

    def _minted(self, effect: io.Minted) -> None:
        handoff = self._reserving
        self._reserving = None
        if handoff is None:
            return
        ask, turn = handoff.submission.ask.number, handoff.submission.turn
        self._ground.minted(self.incarnation, effect.attempt, ask, turn)
        self.handoffs[effect.attempt] = handoff
        self._attempts[effect.request] = effect.attempt
        for part in handoff.parts:
            memory, places = part.memory, part.places
            self._ground.checks.no_alias.leased(effect.attempt, places, memory.writers, memory.readers, memory.where)
            memory.lease(places, effect.attempt)

    # ------------------------------------------------------------ hand-offs

    def _send(self, effect: io.Send) -> None:
        envelope = effect.envelope
        self.intake.says(envelope)
        self._cluster.network.send(envelope, self.incarnation, envelope.to.incarnation, True)

    def check_armed(self, envelope: Envelope) -> None:
        """What leaves says that its attempt failed."""
        number = envelope.attempt
        armed = number not in self.handoffs or self.is_held(number)
        about = self._ground.tale(self.incarnation, number).ask
        self._ground.checks.armed_first.aborted(kind_of(envelope.body).upper(), number, armed, self.name, about)

    def is_held(self, attempt: Attempt) -> bool:
        """Whether the hold of a hand-off is armed, at any rank that has not released it."""
        return any(part.memory.is_held(attempt) for part in self.handoffs[attempt].parts)

    def _verify(self, effect: io.Verify) -> None:
        """Ask the memory itself: every slice of every page bears the lease's tag. Staged: of a copy."""
        handoff = self.handoffs[effect.attempt]
        if self._ground.p.landing == "staged":
            self._copier.copy(effect.attempt, handoff)
            return
        ok = self.trusts or all(
            cells[page][0] == part.lease.tag
            for part in handoff.parts
            for cells in part.memory.cells
            for page in part.places
        )
        if not ok:
            self._ground.marks.hit("verification failed")
        self.feed(io.Verified(effect.attempt, None if ok else NOT_COVERED))

    def _cache(self, effect: io.Cache) -> None:
        handoff = self.handoffs[effect.attempt]
        text = handoff.submission.text
        attempt = self.state.attempts.get(effect.attempt)
        committed = attempt is not None and attempt.phase == "committed"
        self._ground.checks.no_poison.cached(committed, self.name, handoff.submission.ask.number)
        for rank, memory in enumerate(self.memories):
            reader, part = handoff.readers[rank], handoff.parts[rank]
            pages = np.concatenate([reader.pages, part.own_pages]) if len(reader.pages) else part.own_pages
            memory.prefixes.insert(reader, text.salt, text.tokens, pages)
            part.own_pages = pages[len(reader.pages) :]
            signs.shared(self._ground, memory, reader, text, "")

    def _attach(self, effect: io.Attach) -> None:
        handoff = self.handoffs[effect.attempt]
        self._attempts.pop(handoff.submission.request, None)
        text = handoff.submission.text
        sequence = Sequence(handoff.submission, len(self.memories))
        for rank, memory in enumerate(self.memories):
            lent, part = handoff.lent[rank], handoff.parts[rank]
            self._lease_over(effect.attempt, rank)
            self.landings.ranks[rank].commit(part)
            memory.allocator.mark(part.own_pages, PageState.USED)
            tags = memory.allocator.tag_of(np.array(lent, np.int32)).tolist() if lent else []
            tags += [part.context.tag] * len(part.pages)
            sequence.pages[rank] = lent + part.pages
            sequence.cells[rank] = list(zip(tags, text.labels, strict=True))
            memory.read_by(sequence.pages[rank], 1)
        sequence.borrowed = len(text.labels)
        sequence.prefix, sequence.attempt = handoff.readers, effect.attempt
        self.batch.begin(sequence)

    def _request_failed(self, effect: io.RequestFailed) -> None:
        handoff = self.handoffs[effect.attempt]
        self._attempts.pop(handoff.submission.request, None)
        for reader in handoff.readers:
            reader.leave()
        signs.handoff_failed(self._ground, self, effect.attempt, effect.failure)
        self.tell_failed(handoff.submission, effect.failure)

    # ------------------------------------------------------------ holds

    def _hold(self, effect: io.Hold) -> None:
        self.landings.hold(effect.attempt, self.handoffs[effect.attempt])
        self.intake.held(effect)

    def _quarantine(self, effect: io.Quarantine) -> None:
        self._ground.marks.hit("quarantine")
        handoff = self.handoffs[effect.attempt]
        handoff.quarantined = True
        self.landings.quarantine(handoff, self.state.attempts[effect.attempt].released)
        self._pool_changed()
        self._cluster.quarantined(self)

    def _release(self, effect: io.Release) -> None:
        rank, handoff = effect.decode_rank, self.handoffs[effect.attempt]
        self._ground.checks.once.released(self.incarnation, effect.attempt, rank)
        signs.released(self._ground, handoff.quarantined, effect.proof)
        part = handoff.parts[rank]
        part.memory.held.discard(effect.attempt)
        if not part.is_committed:
            self._lease_over(effect.attempt, rank)
        self.landings.ranks[rank].release(part)
        handoff.left -= 1
        if not handoff.left:
            del self.handoffs[effect.attempt]
        self._pool_changed()

    def _lease_over(self, attempt: Attempt, rank: int) -> None:
        """Nobody may reach a lease's pages any more, and nothing is on its way to them."""
        handoff = self.handoffs[attempt]
        part, number = handoff.parts[rank], handoff.submission.ask.number
        flights = self._cluster.air.to(self.incarnation, attempt)
        in_flight = sum(flight.key.decode.rank == rank for flight in flights)
        self._ground.checks.no_wild_write.released(attempt, in_flight, part.memory.where, number)
        self.landings.ranks[rank].over(part)

    def _pool_changed(self) -> None:
        self._ground.loop.after(0.0, self.life, self._use_freed_pages)

    def _use_freed_pages(self) -> None:
        self._reserve_waiting()
        self.batch.wake()

    # ------------------------------------------------------------ clocks

    def _start_timer(self, effect: io.StartTimer) -> None:
        fact = io.TimerFired(effect.attempt, effect.timer)
        delay_s = self._delay_s(effect.timer, effect.round)
        self.clocks.start(effect.attempt, effect.timer, delay_s, self._fired, fact)

    def _fired(self, fact: io.TimerFired) -> None:
        signs.decode_clock(self._ground.marks, self.state, fact)
        self._driver.feed(fact)

    def _delay_s(self, timer: io.Timer, round_: int) -> float:
        p = self._ground.p
        if timer is io.Timer.RESEND:
            return backoff_s(p.resend_s, round_)
        return p.handoff_timeout_s if timer is io.Timer.HANDOFF else p.hold_deadline_s

    def _stop_timers(self, effect: io.StopTimers) -> None:
        self.clocks.stop(effect.attempt)

    def _ignored(self, effect: io.Ignored) -> None:
        signs.ignored(self._ground.marks, effect.kind, effect.reason)

    # ------------------------------------------------------------ what the batch says

    def said(self, submission: Submission, last: bool) -> None:
        if last:
            self.clocks.stop(submission.request)
        self._cluster.router.tokens(self, submission, last)

    def lease_unused(self, attempt: Attempt) -> None:
        self.feed(io.Finished(attempt))

    def stepped(self) -> None:
        self._reserve_waiting()

    def peers_changed(self) -> None:
        self._cluster.router.workers_changed()

    @property
    def load(self) -> int:
        return self.batch.running + len(self._waiting) + len(self._attempts)

    @property
    def queued(self) -> int:
        return len(self._waiting)
