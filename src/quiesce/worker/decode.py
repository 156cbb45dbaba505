"""The decode worker: reserves pages, publishes them, commits what is proved to be there, and generates."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from quiesce.control.frames import pack
from quiesce.control.whereabouts import Whereabouts
from quiesce.errors import OutOfPages, PeerUnusable, RequestRejected, invariant
from quiesce.ids import Attempt, Peer, RequestId
from quiesce.kv.allocator import PageState
from quiesce.kv.prefix_cache import Reader
from quiesce.kv.runs import Pages
from quiesce.protocol.dispatch import Accepted, Load, Peers, RoomView, WorkerFrame, WorkerSnapshot
from quiesce.protocol.hello import PULL
from quiesce.protocol.messages import Envelope, Failure, Fault
from quiesce.protocol.receiver_io import Abandon, Attach, Finished, Reserve
from quiesce.telemetry.logs import ids
from quiesce.worker.generating import GeneratingWorker
from quiesce.worker.greeting import hello_of, transport_facts
from quiesce.worker.handoff import Handoff, Places
from quiesce.worker.headroom import growth_pages
from quiesce.worker.intake import DecodeInput, MakeIntake
from quiesce.worker.landing import DirectLanding, Landing
from quiesce.worker.parts import Parts
from quiesce.worker.peer_discovery import follow_peers
from quiesce.worker.prefill_streams import PrefillStreams
from quiesce.worker.priority_queue import PriorityQueue
from quiesce.worker.request import Request
from quiesce.worker.sequence import Generation, Sequence
from quiesce.worker.staged_landing import StagedLanding

log = logging.getLogger(__name__)

PAIR_LOST = Failure("pair_unavailable", "The prefill worker of this request was lost.", Fault.PREFILL, 503)

ROWS_PER_RUNNING = 2
"""Hand-offs that may be under way beside a full batch, so that a sequence that ends is followed at once."""


class Waiting:
    """A request that the door let in and that waits for pages or a seat."""

    def __init__(self, request: Request, generation: Generation) -> None:
        self.request = request
        self.generation = generation


class DecodeWorker(GeneratingWorker):
    """Owns the pool, the batch, the streams to prefill workers, and the intake by which prompts come (one machine)."""

    def __init__(self, parts: Parts, make_intake: MakeIntake) -> None:
        super().__init__(parts)
        self.handoffs: dict[Attempt, Handoff] = {}
        self._waiting: PriorityQueue[RequestId, Waiting] = PriorityQueue()
        self._attempts: dict[RequestId, Attempt] = {}
        self._reserving: Handoff | None = None
        self._landing = self._landing_of(parts)
        self.intake = make_intake(self, self._landing, self.trace.record)
        self.streams = PrefillStreams(parts, self.intake, self)
        self.where = Whereabouts(self.streams.expect)

    def _landing_of(self, parts: Parts) -> Landing:
        if parts.landing is None:
            return DirectLanding(parts.pool, parts.allocator, told=self.settings.transfer != PULL)
        return StagedLanding(parts.landing, parts.pool, parts.allocator, self.telemetry, self.pool_changed)

    # ------------------------------------------------------------ the door

    def admit(self, request: Request) -> None:
        generation = self.admitted(request)
        if not self.streams.grants_of(request.submit.prefill):
            raise RequestRejected(
                f"Prefill worker {request.submit.prefill!r} is not connected.", code="pair_unavailable", status=503
            )
        if len(self._waiting) >= self.settings.max_queue:
            raise RequestRejected("Too many requests wait at decode.", code="queue_full", status=429)
        self._waiting.put(request.id, Waiting(request, generation), request.submit.priority)
        self.tell(request.id, Accepted(request.id))
        self._reserve_waiting()

    def abandon(self, request: RequestId, failure: Failure) -> None:
        if self._waiting.remove(request) or self.batch.end(request):
            self.tell_failed(request, failure)
        elif request in self._attempts:
            self.feed(Abandon(self._attempts[request], failure))
        self._reserve_waiting()

    def holds(self, request: RequestId) -> bool:
        return request in self._attempts or request in self.batch

    # ------------------------------------------------------------ reservations

    def _reserve_waiting(self) -> None:
        """Reserve for waiting requests, in their order, while pages and seats last; nobody passes the first."""
        while self._waiting and self._may_reserve():
            waiting = self._waiting.first
            failure = self._hopeless(waiting.request)
            try:
                taken = None if failure else self._take_places(waiting.request, waiting.generation)
            except OutOfPages:
                return
            except PeerUnusable as error:
                log.warning("a lease cannot be passed on", extra=ids(request=waiting.request.id, reason=error))
                failure, taken = PAIR_LOST, None
            self._waiting.pop_first()
            if taken is not None:
                self._reserve(waiting, *taken)
            elif failure is not None:
                self.tell_failed(waiting.request.id, failure)

    def _hopeless(self, request: Request) -> Failure | None:
        """Why nothing can ever be reserved for it."""
        if not self.streams.grants_of(request.submit.prefill):
            return PAIR_LOST
        return None if self.has_room_for(request.prompt_tokens) else self.no_room()

    def _may_reserve(self) -> bool:
        """Hand-offs under way and running sequences share a bounded number of rows; held attempts take none."""
        rows = len(self._attempts) + self.batch.running
        most_rows = ROWS_PER_RUNNING * self.settings.max_running_requests
        return self._landing.free_seats > 0 and rows < most_rows and not self.batch.retracted

    def _take_places(self, request: Request, generation: Generation) -> tuple[Reader, Places]:
        """Share what is cached of the prompt; pages for the rest, but none that were promised to others."""
        reader = self.read_prefix(request)
        n_pages = self.parts.pool.layout.pages_for(request.prompt_tokens) - len(reader.pages)
        try:
            if not self.may_take(n_pages, request, generation):
                raise OutOfPages(f"{n_pages} pages are wanted")
            places = self._landing.take(n_pages, request.id)
        except OutOfPages:
            reader.leave()
            raise
        try:
            self.intake.arm(places, self.streams.grants_of(request.submit.prefill))
        except PeerUnusable:
            self._landing.give_up(places)
            reader.leave()
            raise
        return reader, places

    def has_room_for(self, prompt_tokens: int) -> bool:
        return self._landing.has_room_for(self.parts.pool.layout.pages_for(prompt_tokens))

    def has_others(self) -> bool:
        return super().has_others() or bool(self._attempts)

    def promised_pages(self) -> int:
        """A hand-off under way will run, and grow from its lease on."""
        page_size, most = self.settings.page_size, self.settings.headroom_tokens
        under_way = [self.handoffs[attempt] for attempt in self._attempts.values()]
        prompts = ((h.request.prompt_tokens, min(h.generation.max_tokens - 1, most)) for h in under_way)
        growth = sum(growth_pages(tokens, -(-tokens // page_size), steps, page_size) for tokens, steps in prompts)
        return super().promised_pages() + growth

    def read_prefix(self, request: Request) -> Reader:
        """No write can reach shared pages, by proof; their tags are compared all the same before anybody new reads."""
        reader = super().read_prefix(request)
        tags = self.parts.allocator.tag_of(reader.pages)
        if not (self.parts.pool.tags[reader.pages] == tags[:, None]).all():
            self.telemetry.inc("quiesce_tag_mismatches", where="share")
            log.error("cached pages lost their tags: they are quarantined", extra=ids(pages=len(reader.pages)))
            reader.condemn_for_ever()
            reader.leave()
        return reader

    def _reserve(self, waiting: Waiting, reader: Reader, places: Places) -> None:
        request = waiting.request
        self.count_prefix(reader)
        self._reserving, lease = Handoff(request, waiting.generation, places, reader), self._landing.published(places)
        grants = self.streams.grants_of(request.submit.prefill)
        held_tokens = self._reserving.held_pages * self.settings.page_size
        who, whole = (request.id, request.room, request.digest), request.prompt_tokens
        self.feed(Reserve(*who, (lease,), grants, whole, held_tokens, self._landing.mode))

    def minted(self, attempt: Attempt, request: RequestId) -> None:
        invariant(self._reserving is not None, "minted_follows_reserve", str(attempt))
        if self._reserving is not None:
            self.handoffs[attempt] = self._reserving
        self._attempts[request] = attempt
        self._reserving = None

    # ------------------------------------------------------------ the machine

    def feed(self, event: DecodeInput) -> None:
        self.advance(self.intake.feed, event)

    def send(self, envelope: Envelope) -> None:
        self.streams.send(envelope)

    def breach(self, prefill: Peer, problem: str) -> None:
        self.streams.breach(prefill, problem)

    def handoff_failed(self, handoff: Handoff, failure: Failure) -> None:
        self._attempts.pop(handoff.request.id, None)
        handoff.reader.leave()  # what was shared was published to nobody
        self.telemetry.spans.record(handoff.request.id, "hand-off", handoff.started_s, code=failure.code)
        self.tell_failed(handoff.request.id, failure)

    def cache(self, handoff: Handoff) -> None:
        handoff.cache(self.parts.prefixes)

    def attach(self, committed: Attach) -> None:
        """The hand-off is committed: its pages, and those it shares, are the sequence's context from now on."""
        handoff = self.handoffs[committed.attempt]
        self._attempts.pop(handoff.request.id, None)
        self.telemetry.spans.record(handoff.request.id, "hand-off", handoff.started_s, attempt=committed.attempt)
        self.parts.allocator.mark(handoff.own_pages, PageState.USED)
        wanted = handoff.request.sampling.logprobs is not None
        told = committed.first_logprobs if wanted else None
        self.begin(handoff.request, self._sequence_of(handoff, committed), committed.first_token, told)

    def _sequence_of(self, handoff: Handoff, committed: Attach) -> Sequence:
        request = handoff.request
        sequence = Sequence(request.id, handoff.generation, request.prompt_tokens)
        sequence.own(handoff.reader.pages, self.parts.allocator.tag_of(handoff.reader.pages))
        sequence.own(handoff.own_pages, handoff.context.tag)
        sequence.reader, sequence.attempt = handoff.reader, committed.attempt
        sequence.borrowed_pages = len(sequence.pages)
        sequence.cached_tokens = min(committed.cached_tokens, request.prompt_tokens)
        return sequence

    def pool_changed(self) -> None:
        """Pages came back, or went into quarantine: who waits for pages looks again."""
        asyncio.get_running_loop().call_soon(self._use_freed_pages)

    def _use_freed_pages(self) -> None:
        self._reserve_waiting()
        self.batch.wake()
        self.announce()

    # ------------------------------------------------------------ what the batch says

    def keep(self, sequence: Sequence) -> Pages:
        """What was computed here, on a verified context, may begin the next turn's prompt: prefill need not send it.

        One that was retracted came back on copies of its pages, and its lease is over: nothing of it is kept.
        """
        if sequence.attempt is None:
            return sequence.own_pages
        return self.handoffs[sequence.attempt].keep(self.parts.prefixes, sequence)

    def lease_unused(self, sequence: Sequence) -> None:
        if sequence.attempt is not None:
            handoff = self.handoffs[sequence.attempt]
            handoff.tainted |= sequence.tainted
            tokens = sequence.generated
            self.telemetry.spans.record(sequence.request, "decode", handoff.committed_s, tokens=tokens)
            self.feed(Finished(sequence.attempt))

    def stepped(self) -> None:
        self._reserve_waiting()
        self.announce()

    # ------------------------------------------------------------ views

    def greeting(self) -> list[WorkerFrame]:
        return [self.welcome(), Peers(self.streams.up(), self.streams.troubles()), self.load()]

    def troubles(self) -> tuple[tuple[str, str], ...]:
        return self.streams.troubles()

    def peers_changed(self) -> None:
        self.links.broadcast(Peers(self.streams.up(), self.streams.troubles()))

    def hello(self) -> bytes:
        return pack(hello_of(self.parts, self.intake.capabilities))

    def facts(self) -> tuple[tuple[str, str], ...]:
        return (*super().facts(), *transport_facts(self.settings, self.intake.capabilities))

    def load(self) -> Load:
        free_tokens = self.parts.allocator.available_pages * self.settings.page_size
        waiting = len(self._waiting) + len(self._attempts)
        reason = self.unready_reason()
        queued = len(self._waiting)
        return Load(self.batch.running, waiting, free_tokens, ready=not reason, reason=reason, queued=queued)

    def unready_reason(self) -> str:
        """A hand-off that lands in quarantine costs what it lands in: each pool has the budget's share of itself."""
        if reason := super().unready_reason():
            return reason
        if reason := self._landing.over_budget(self.settings.quarantine_budget):
            self.worn_out.set()
        return reason

    def snapshot(self) -> WorkerSnapshot:
        return msgspec.structs.replace(super().snapshot(), landing=self._landing.pages())

    def metrics(self) -> str:
        for state, pages in self._landing.pages().items():
            self.telemetry.set("quiesce_landing_pages", pages, state=state)
        self.telemetry.set("quiesce_waiting_handoffs", len(self._attempts))
        held = [handoff for handoff in self.handoffs.values() if handoff.held_s is not None]
        self.telemetry.inc("quiesce_held_page_seconds", sum(handoff.charge() for handoff in held))
        self.telemetry.set("quiesce_oldest_hold_seconds", max((h.held_s or 0.0 for h in held), default=0.0))
        self.intake.export_refusals()
        return super().metrics()

    def rooms(self) -> tuple[RoomView, ...]:
        now_s = time.monotonic()
        return tuple(
            RoomView(
                handoff.request.id,
                attempt,
                handoff.state,
                len(handoff.lease.pages),
                now_s - handoff.started_s,
                tuple(str(peer) for peer in handoff.awaiting),
            )
            for attempt, handoff in self.handoffs.items()
        )

    def is_quiet(self) -> bool:
        held = any(handoff.state != "quarantined" for handoff in self.handoffs.values())
        return not (held or self._waiting or self.batch.running or self._landing.is_busy)

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Generate until cancelled."""
        self.intake.start()
        watching = asyncio.create_task(self._follow_peers(), name="peers")
        try:
            while True:
                if not await self.batch.step():
                    await self.batch.idle()
        finally:
            watching.cancel()
            await self.streams.close()
            self.intake.stop()

    async def _follow_peers(self) -> None:
        """Follow who there is. An error that nobody foresaw ends this worker, not just the following."""
        try:
            await follow_peers(self.parts, self.where)
        except Exception as error:
            self.give_up(error)

    def close(self) -> None:
        self.links.close()
        self.intake.close()

    def join(self) -> None:
        """End the threads of landing and engine."""
        self._landing.close()
        self.parts.join()
