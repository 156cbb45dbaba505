"""What prefill, decode and aggregated workers share: routers' requests, who owns them, load, drain."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn, TypeVar

from quiesce.errors import RequestRejected
from quiesce.ids import RequestId
from quiesce.kv.prefix_cache import Reader
from quiesce.protocol import trace
from quiesce.protocol.dispatch import (
    DISPATCH_VERSION,
    LEAVING,
    NO_PREFIX_CACHE,
    Cancel,
    Failed,
    Load,
    PromptTold,
    RoomView,
    Submit,
    Welcome,
    WorkerFrame,
    WorkerSnapshot,
)
from quiesce.protocol.messages import Failure, Fault
from quiesce.telemetry.logs import ids, origin
from quiesce.worker.links import Link, Links
from quiesce.worker.parts import Parts
from quiesce.worker.prompt import Chunk
from quiesce.worker.request import ROUTER_GONE, Request, rejection
from quiesce.worker.timers import Timers
from quiesce.worker.trace_ring import TraceRing

log = logging.getLogger(__name__)

E = TypeVar("E")

NO_ROOM = "Pages in quarantine leave no room for this request on this worker."
DUPLICATE = "duplicate_request"
DRAINING = Failure("worker_draining", "This worker is shutting down.", Fault.QUIESCE, 503)
DEADLINE = Failure("deadline_exceeded", "The request's timeout has passed.", Fault.CLIENT, 504)


class WorkerProcess(ABC):
    """One worker. Subclasses admit requests, compute, and know what is still held.

    `worn_out` is set when the worker should drain and begin a new life: too much of its memory waits for proofs.
    `broken` gets the exception after which nothing here can be trusted: the life ends at once.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.settings = parts.settings
        self.telemetry = parts.telemetry
        self.trace = TraceRing(trace.machine(self.settings.role, parts.incarnation))
        self.links = Links(self, parts.lines)
        self.draining = False
        self._owners: dict[RequestId, Link] = {}
        self._deadlines = Timers()
        self._last_load: Load | None = None
        self._quiet = asyncio.Event()
        self.worn_out = asyncio.Event()
        self.broken: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------ for subclasses to fill in

    @abstractmethod
    def admit(self, request: Request) -> None:
        """Check and take the request in. Raises RequestRejected before anything exists (rule 10)."""

    @abstractmethod
    def abandon(self, request: RequestId, failure: Failure) -> None:
        """End a request that was taken in, if it still exists."""

    @abstractmethod
    def holds(self, request: RequestId) -> bool:
        """Whether anything of the request is still here, although its router may not want to know any more."""

    def refused(self, request: Request, failure: Failure) -> None:  # noqa: B027 - most workers need not remember
        """The door refused a request, for this reason."""

    @abstractmethod
    def load(self) -> Load: ...

    @abstractmethod
    def rooms(self) -> tuple[RoomView, ...]: ...

    @abstractmethod
    def is_quiet(self) -> bool:
        """Nothing runs, waits or is held, except quarantine."""

    # ------------------------------------------------------------ requests

    def submit(self, frame: Submit, link: Link) -> None:
        request = Request(frame, link, self.parts.engine.fingerprint)
        try:
            self._check_door(request)
            self._own(request, link)
            request.constraint = self.parts.grammars.begin(request.sampling.grammar)
            self.admit(request)
        except RequestRejected as error:
            request.drop_constraint()
            self._reject(request, error)
        self.announce()

    def _own(self, request: Request, link: Link) -> None:
        """From now on the request's time runs, wherever it waits or is at work, until its router needs no more."""
        self._owners[request.id] = link
        left_s = request.submit.timeout_s
        if left_s is not None:
            self._deadlines.start(request.id, "deadline", left_s, lambda: self._expire(request.id))

    def _expire(self, request: RequestId) -> None:
        """A request's time is over: it ends as if its client had left. Its pages still await their proof."""
        self.telemetry.inc("quiesce_deadlines")
        self.abandon(request, DEADLINE)
        self.announce()

    def _check_door(self, request: Request) -> None:
        if request.id in self._owners or self.holds(request.id):
            raise RequestRejected("This request id is in use.", code=DUPLICATE, status=409)
        if self.draining:
            raise RequestRejected(DRAINING.message, code=DRAINING.code, status=DRAINING.status)
        request.check_vocabulary(self.parts.engine.config.vocab_size)

    def _reject(self, request: Request, error: RequestRejected) -> None:
        fault = Fault.CLIENT if error.status < 500 and error.status != 429 else Fault(self._fault())
        failure = rejection(error, fault)
        if error.code != DUPLICATE:
            self.forget(request.id)
            self.refused(request, failure)
        self.telemetry.inc("quiesce_rejections", code=error.code)
        request.link.send(Failed(request.id, failure, rejected=True))

    def _fault(self) -> str:
        return "prefill" if self.settings.role == "prefill" else "decode"

    def cancel(self, frame: Cancel, link: Link) -> None:
        if self._owners.get(frame.request) is link:
            self.forget(frame.request)
            self.abandon(frame.request, frame.failure)
            self.announce()

    def link_lost(self, link: Link) -> None:
        for request in [r for r, owner in self._owners.items() if owner is link]:
            self.forget(request)
            self.abandon(request, ROUTER_GONE)
        self.announce()

    def tell(self, request: RequestId, frame: WorkerFrame) -> None:
        """Send to the request's router, if it still wants to know."""
        link = self._owners.get(request)
        if link is not None:
            link.send(frame)

    def forget(self, request: RequestId) -> None:
        """The request's router needs to hear nothing more of it."""
        self._owners.pop(request, None)
        self._deadlines.stop(request)

    def note_compute_error(self, request: RequestId, error: Exception) -> None:
        """Count and log an error that is one request's own. What it says may quote the request: that is not logged."""
        self.telemetry.inc("quiesce_compute_errors")
        log.error("computing for a request failed", extra=ids(request=request, reason=origin(error)))

    # ------------------------------------------------------------ load and views

    def greeting(self) -> list[WorkerFrame]:
        return [self.welcome(), self.load()]

    def welcome(self) -> Welcome:
        parts = self.parts
        return Welcome(
            worker=self.settings.name,
            role=self.settings.role,
            incarnation=parts.incarnation,
            model=parts.engine.config.name,
            model_fingerprint=parts.engine.fingerprint,
            context_length=parts.limits.context_length,
            pool_tokens=parts.limits.pool_tokens,
            page_size=self.settings.page_size,
            max_queue=self.settings.max_queue,
            facts=self.facts(),
            version=DISPATCH_VERSION,
            max_running=self.settings.max_running_requests,
            landing_tokens=parts.limits.landing_tokens,
        )

    def facts(self) -> tuple[tuple[str, str], ...]:
        """What the start table shows beside limits."""
        settings = self.settings
        mode = "deterministic" if settings.deterministic else "default"
        told = (("dtype", settings.dtype), ("threads", str(settings.threads)), ("arithmetic", mode))
        return told if settings.prefix_cache == "on" else (*told, NO_PREFIX_CACHE)

    def hello(self) -> bytes:
        """What this worker says in HELLO, b"" where it pairs with nobody."""
        return b""

    def troubles(self) -> tuple[tuple[str, str], ...]:
        """Whom this worker should pair with and cannot, and why."""
        return ()

    def announce(self) -> None:
        """Tell routers the load when it changed, and wake whoever waits for quiet."""
        load = self.load()
        if load != self._last_load:
            self._last_load = load
            self.links.broadcast(load)
        if self.is_quiet():
            self._quiet.set()
        else:
            self._quiet.clear()

    def has_room_for(self, prompt_tokens: int) -> bool:
        """Whether a prompt can ever fit: pages in quarantine do not come back by themselves."""
        return self.parts.pool.layout.pages_for(prompt_tokens) <= self.parts.allocator.usable_pages

    def check_room(self, prompt_tokens: int) -> None:
        """Raises RequestRejected (503) for a prompt that quarantine leaves no room for."""
        if not self.has_room_for(prompt_tokens):
            raise RequestRejected(NO_ROOM, code="pool_quarantined", status=503)

    def no_room(self) -> Failure:
        return Failure("pool_quarantined", NO_ROOM, Fault(self._fault()), 503)

    def unready_reason(self) -> str:
        """Why no new request should come here, or "". Over budget, it also asks for a new life."""
        if self.draining:
            return LEAVING
        quarantined, pages = self.parts.allocator.counts()["quarantined"], self.parts.pool.pages
        if quarantined > self.settings.quarantine_budget * pages:
            self.worn_out.set()
            return f"{quarantined} of {pages} pages are quarantined, over --quarantine-budget"
        return ""

    def metrics(self) -> str:
        for state, pages in self.parts.allocator.counts().items():
            self.telemetry.set("quiesce_pages", pages, state=state)
        self.telemetry.inc("quiesce_prefix_evicted_pages", self.parts.prefixes.take_evicted())
        load = self.load()
        self.telemetry.set("quiesce_running_requests", load.running)
        self.telemetry.set("quiesce_waiting_requests", load.waiting)
        self.telemetry.set("quiesce_ready", load.ready)
        return self.telemetry.render()

    def read_prefix(self, request: Request) -> Reader:
        """Share what is cached of a prompt. Its reader must leave, whatever becomes of the request."""
        # What is cached is not computed, and has nothing to tell.
        token_ids = b"" if request.submit.tells_prompt else request.submit.token_ids
        return self.parts.prefixes.read(request.submit.salt, token_ids)

    def tell_prompt(self, request: Request, chunk: Chunk) -> None:
        """How likely the tokens of a chunk were, if that was asked for."""
        if chunk.told:
            self.tell(request.id, PromptTold(request.id, chunk.told_from, chunk.told))

    def count_prefix(self, reader: Reader) -> None:
        """A prompt is computed from here on."""
        if len(reader.pages):
            self.telemetry.inc("quiesce_prefix_hits")
            self.telemetry.inc("quiesce_prefix_tokens", len(reader.pages) * self.settings.page_size)

    def flush(self, done: Callable[[], None]) -> None:
        """Forget every cached prefix and call `done` when the last of their pages is free."""
        self.parts.prefixes.flush(done)

    def snapshot(self) -> WorkerSnapshot:
        load = self.load()
        return WorkerSnapshot(
            worker=self.settings.name,
            role=self.settings.role,
            incarnation=self.parts.incarnation,
            pages=self.parts.allocator.counts(),
            page_size=self.settings.page_size,
            ranges=self.parts.allocator.ranges(),
            rooms=self.rooms(),
            running=load.running,
            waiting=load.waiting,
            routers=self.links.routers,
            troubles=self.troubles(),
        )

    # ------------------------------------------------------------ the end

    def advance(self, feed: Callable[[E], None], event: E) -> None:
        """Feed a machine. An error may leave effects carried out in part: the worker is broken and hears no more."""
        if self.broken.done():
            return
        try:
            feed(event)
        except Exception as error:
            self.give_up(error)
            raise
        self.announce()

    def give_up(self, error: BaseException) -> None:
        """Something failed half way, so invariants may not hold: this life must end, and its memory with it."""
        if not self.broken.done():
            log.critical("this worker cannot go on", exc_info=error)
            self.broken.set_exception(error)

    async def drain(self, grace_s: float) -> bool:
        """Refuse new requests, let running ones finish, then end them and wait for proofs; True when quiet."""
        self.draining = True
        self.announce()
        if await self.quiet_within(grace_s * 0.8):
            return True
        for request in list(self._owners):
            self.abandon(request, DRAINING)
        self.announce()
        return await self.quiet_within(grace_s * 0.2)

    async def quiet_within(self, seconds: float) -> bool:
        """Wait until nothing runs, waits or is held, except quarantine; False when that takes too long."""
        if self._quiet.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True
