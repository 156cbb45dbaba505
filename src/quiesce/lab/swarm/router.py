"""The simulated router: the production machines for fair turns, quotas, pairing, retries and circuit breakers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from quiesce.errors import RequestRejected
from quiesce.ids import Incarnation, RequestId, Room
from quiesce.lab.swarm import fates
from quiesce.lab.swarm.fates import mixed
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.pairs import Pairs
from quiesce.lab.swarm.submission import CLIENT_GONE, OUT_OF_TIME, ROUTER_GONE, Submission
from quiesce.lab.swarm.turns import Turns
from quiesce.lab.swarm.workload import Ask, Text
from quiesce.protocol import pairing
from quiesce.protocol.breaker import Cause
from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.pairing import Half, Side

if TYPE_CHECKING:
    from quiesce.lab.swarm.cluster import Cluster
    from quiesce.lab.swarm.decode import DecodeWorker
    from quiesce.lab.swarm.prefill import PrefillWorker

    Worker: TypeAlias = DecodeWorker | PrefillWorker

PATIENCE_S = 1.0
PROBE_TIMEOUT_S = 10.0
FRAMES = ("SUBMIT to", "CANCEL to", "FAILED from")
FIRST_PROBE = 1_000_000_000
"""Probes are numbered from here on, so that a probe more or less changes nothing for requests."""


class Request:
    """One request at the router, over as many tries as it takes. `only`: a probe of this pair."""

    __slots__ = ("ask", "deadline_s", "failed", "left", "only", "placed", "text", "tries", "turn", "waits_since_s")

    def __init__(self, ask: Ask, text: Text, retries: int, now_s: float, only: tuple[str, str] | None = None) -> None:
        self.ask, self.text, self.only = ask, text, only
        self.tries = retries + 1
        self.turn = 0
        self.failed: frozenset[Incarnation] = frozenset()
        self.deadline_s = None if ask.timeout_s is None else now_s + ask.timeout_s
        self.left = False
        self.placed = 0
        self.waits_since_s = now_s


class Attempted:
    """One try under way."""

    __slots__ = ("decode", "lives", "prefill", "request", "state", "submission")

    def __init__(self, request: Request, submission: Submission, prefill: PrefillWorker, decode: DecodeWorker) -> None:
        self.request, self.submission = request, submission
        self.prefill, self.decode = prefill, decode
        self.lives = (prefill.incarnation, decode.incarnation)
        self.state = pairing.start()

    def side(self, worker: Worker) -> Side | None:
        if worker is self.prefill:
            return Side.PREFILL
        return Side.DECODE if worker is self.decode else None

    def worker(self, side: Side) -> Worker:
        return self.prefill if side is Side.PREFILL else self.decode


class Router:
    """One router. It never dies here; its streams to workers do."""

    def __init__(self, ground: Ground, cluster: Cluster) -> None:
        self._ground, self._cluster = ground, cluster
        self._live: dict[RequestId, Attempted] = {}
        self._open: dict[int, Request] = {}
        self._of: dict[int, Attempted] = {}
        self.pairs = Pairs(ground, cluster)
        self.turns = Turns(ground, self.pairs, self._begin)
        self._due_s: dict[Incarnation, float] = {}
        self._heard_s: dict[Incarnation, float] = {}
        self._probes = 0
        self._looking = False
        self.begun: set[int] = set()

    # ------------------------------------------------------------ a request comes, waits, is placed

    def ask(self, ask: Ask) -> None:
        """A client asks."""
        self.begun.add(ask.number)
        request = Request(ask, self._ground.texts.of(ask), self._ground.p.retries, self._ground.loop.now_s)
        self._open[ask.number] = request
        if not self.turns.take_quota(ask.tenant):
            self._ground.marks.hit("throttled")
            self._end(request, "throttled")
            return
        if ask.leaves_s is not None:
            self._ground.loop.after(ask.leaves_s, None, self._client_leaves, request)
        if request.deadline_s is not None:
            self._ground.loop.after(ask.timeout_s or 0.0, None, self._expire, request)
        self._consider(request)

    def _consider(self, request: Request) -> None:
        """Reject it, queue it, or wait a moment for workers that were here just now."""
        if request.ask.number not in self._open:
            return
        pairs = self.pairs.usable()
        if not pairs:
            self._wait_for_pairs(request)
            return
        try:
            self.pairs.choose(pairs, request)
        except RequestRejected as error:
            self._reject(request, error)
            return
        if request.turn:
            self._place_now(request)
        elif not self.turns.queue(request):
            self._ground.marks.hit("queue full")
            self._end(request, "queue_full")

    def _wait_for_pairs(self, request: Request) -> None:
        if self._ground.loop.now_s - request.waits_since_s > PATIENCE_S:
            self._end(request, "no_workers")
        else:
            self._ground.loop.after(PATIENCE_S / 4, None, self._consider, request)

    def _reject(self, request: Request, error: RequestRejected) -> None:
        """No worker has heard of a request that is rejected here at its first try."""
        if error.status == 429:
            self._ground.marks.hit("queue full")
        else:
            self._ground.marks.hit("rejected by the router")
            known = self._cluster.knows(request.ask.number)
            self._ground.checks.no_stub.rejected(known, "the router", request.ask.number)
        self._end(request, error.code)

    def _place_now(self, request: Request) -> None:
        """Who tries again has had its turn."""
        pairs = self.pairs.usable()
        try:
            prefill, decode, most = self.pairs.choose(pairs, request)
        except RequestRejected as error:
            self._end(request, error.code)
            return
        self._begin(request, prefill, decode, most)

    def workers_changed(self) -> None:
        """Workers came or went, or streams between them."""
        self.pairs.changed()
        self.look_again()

    def look_again(self) -> None:
        """Somebody may have room: whoever waits may begin. Soon, and once for all that changed."""
        if not self._looking:
            self._looking = True
            self._ground.loop.after(self._ground.p.message_s, None, self._look)

    def _look(self) -> None:
        self._looking = False
        self.turns.place_waiting()

    # ------------------------------------------------------------ tries

    def _begin(self, request: Request, prefill: PrefillWorker, decode: DecodeWorker, most: int) -> None:
        """Send both halves at once, in a fresh room."""
        request.turn += 1
        request.tries -= 1
        ask, loop, seed = request.ask, self._ground.loop, self._ground.p.seed
        bits = mixed(seed, (ask.number, request.turn, 77))
        left_s = None if request.deadline_s is None else max(0.001, request.deadline_s - loop.now_s)
        submission = Submission(
            request=RequestId(f"r{ask.number}.{request.turn}"),
            room=Room(bits >> (64 - self._ground.p.room_bits)),
            ask=ask,
            turn=request.turn,
            text=request.text,
            max_tokens=most,
            prefill=prefill.name,
            timeout_s=left_s,
        )
        attempted = Attempted(request, submission, prefill, decode)
        self._live[submission.request] = self._of[ask.number] = attempted
        self.pairs.began(prefill, decode)
        for worker in (prefill, decode):
            self._send(worker, self._late_s(0, submission, worker), worker.submit, submission)

    def _late_s(self, frame: int, submission: Submission, worker: Worker) -> float:
        """How much later than usual a frame of this kind comes."""
        key = (submission.ask.number, submission.turn, worker.index, int(worker.name.startswith("decode")), frame)
        chance, about = self._ground.fates, (self._frame_name, frame, submission, worker)
        if not (chance.strikes(fates.LATE, key, *about) or chance.strikes(fates.HELD_UP, key, *about)):
            return 0.0
        return self._ground.p.longest_delay_s * chance.unit(fates.SPREAD, key) ** 2

    def _frame_name(self, frame: int, submission: Submission, worker: Worker) -> str:
        return f"{FRAMES[frame]} {worker.name} of {submission.ask.number}.{submission.turn}"

    def _send(self, worker: Worker, late_s: float, call: Any, *args: Any) -> None:
        """A frame on the stream to a worker: a late one makes all that follow late."""
        loop = self._ground.loop
        due_s = max(loop.now_s + self._ground.p.message_s + late_s, self._due_s.get(worker.incarnation, 0.0))
        self._due_s[worker.incarnation] = due_s
        loop.at(due_s, worker.life, call, *args)

    def _feed(self, attempted: Attempted, fact: pairing.TryFact) -> None:
        """One step of the pairing machine, and what follows from it."""
        before = attempted.state
        attempted.state, effects = pairing.step(before, fact)
        self._count_ended(attempted, before)
        for effect in effects:
            match effect:
                case pairing.CancelHalf(side, failure):
                    worker = attempted.worker(side)
                    late_s = self._late_s(1, attempted.submission, worker)
                    self._send(worker, late_s, worker.abandon, attempted.submission, failure)
                case pairing.Answered():
                    self._close(attempted)
                    self._answered(attempted)
                case pairing.GaveUp():
                    self._close(attempted)
                    self._gave_up(attempted, effect)

    def _count_ended(self, attempted: Attempted, before: pairing.Try) -> None:
        after = attempted.state
        if after.prefill in pairing.ENDED and before.prefill not in pairing.ENDED:
            self.pairs.handed_off(attempted.prefill, attempted.decode)
            self.look_again()
        if after.decode in pairing.ENDED and before.decode not in pairing.ENDED:
            self.pairs.ended(attempted.decode)
            self.look_again()

    def _close(self, attempted: Attempted) -> None:
        self._live.pop(attempted.submission.request, None)
        self._of.pop(attempted.request.ask.number, None)

    def _answered(self, attempted: Attempted) -> None:
        request = attempted.request
        if request.only is not None:
            self._ground.marks.hit("probe passed")
            self.pairs.breakers.probe_passed(attempted.lives)
        else:
            self._ground.marks.hit("answered")
            self.pairs.breakers.served(attempted.lives)
        self._end(request, "answered")

    def _gave_up(self, attempted: Attempted, effect: pairing.GaveUp) -> None:
        """Blame whoever it was, and try again on a fresh room if that is allowed."""
        request, failure = attempted.request, effect.failure
        if request.only is not None:
            self._ground.marks.hit("probe failed")
            self.pairs.breakers.probe_failed(attempted.lives, failure)
            self._end(request, failure.code)
            return
        if request.turn == 1:
            cause = Cause(f"tenant {request.ask.tenant}", request.text.digest)
            self.pairs.breakers.failed(attempted.lives, failure, cause)
        request.failed |= frozenset(attempted.lives)
        if request.tries > 0 and effect.may_retry and not request.left:
            self._ground.marks.hit("retry on a fresh room")
            request.waits_since_s = self._ground.loop.now_s
            self._consider(request)
        else:
            self._end(request, failure.code)

    def _end(self, request: Request, how: str) -> None:
        number = request.ask.number
        if request.only is None:
            self._ground.checks.ends_once.ended(number, how)
            self.turns.over(request)
        self._open.pop(number, None)
        self._ground.tell(f"request {number} ends: {how}")
        self.look_again()

    # ------------------------------------------------------------ clients

    def _client_leaves(self, request: Request) -> None:
        if request.ask.number not in self._open:
            return
        self._ground.marks.hit("client left")
        request.left = True
        attempted = self._of.get(request.ask.number)
        if attempted is None:
            self._end(request, "client_gone")
        elif self._ground.p.on_disconnect == "after-handoff":
            if attempted.state.decode is not Half.STREAMING:
                self._ground.marks.hit("client left, hand-off finished first")
            self._feed(attempted, pairing.ClientLeft(CLIENT_GONE))
        else:
            self._feed(attempted, pairing.CallOff(CLIENT_GONE))

    def _expire(self, request: Request) -> None:
        if request.ask.number not in self._open:
            return
        self._ground.marks.hit("deadline")
        attempted = self._of.get(request.ask.number)
        if attempted is None:
            self._end(request, OUT_OF_TIME.code)
        else:
            self._feed(attempted, pairing.CallOff(OUT_OF_TIME))

    # ------------------------------------------------------------ what workers say

    def accepted(self, worker: Worker, submission: Submission) -> None:
        self._hear(worker, submission, self._accepted)

    def rejected(self, worker: Worker, submission: Submission, error: RequestRejected) -> None:
        """A worker's door refused."""
        self._ground.marks.hit("queue full" if error.status == 429 else "rejected at a worker's door")
        own = Fault.PREFILL if worker.name.startswith("prefill") else Fault.DECODE
        fault = Fault.CLIENT if error.status < 500 and error.status != 429 else own
        self.failed(worker, submission, Failure(error.code, error.message, fault, error.status))

    def failed(self, worker: Worker, submission: Submission, failure: Failure) -> None:
        late_s = self._late_s(2, submission, worker)
        self._hear(worker, submission, self._failed, failure, late_s=late_s)

    def tokens(self, worker: Worker, submission: Submission, last: bool) -> None:
        self._hear(worker, submission, self._tokens, last)

    def handed_off(self, worker: Worker, submission: Submission) -> None:
        self._hear(worker, submission, self._handed_off)

    def _hear(self, worker: Worker, submission: Submission, call: Any, *args: Any, late_s: float = 0.0) -> None:
        """A frame on the worker's stream: frames of one stream come in order."""
        loop = self._ground.loop
        due_s = loop.now_s + self._ground.p.message_s
        if late_s or worker.incarnation in self._heard_s:
            due_s = self._heard_s[worker.incarnation] = max(due_s + late_s, self._heard_s.get(worker.incarnation, 0.0))
        loop.at(due_s, None, self._heard, worker, submission.request, call, args)

    def _heard(self, worker: Worker, request: RequestId, call: Any, args: tuple[Any, ...]) -> None:
        attempted = self._live.get(request)
        side = None if attempted is None else attempted.side(worker)
        if attempted is not None and side is not None:
            call(attempted, side, *args)

    def _accepted(self, attempted: Attempted, side: Side) -> None:
        self._feed(attempted, pairing.HalfAccepted(side))

    def _failed(self, attempted: Attempted, side: Side, failure: Failure) -> None:
        self._feed(attempted, pairing.HalfFailed(side, failure))

    def _tokens(self, attempted: Attempted, side: Side, last: bool) -> None:
        attempted.request.placed += 1
        self._feed(attempted, pairing.TokensCame(last))

    def _handed_off(self, attempted: Attempted, side: Side) -> None:
        self._feed(attempted, pairing.HandOffDone())

    # ------------------------------------------------------------ lost and silent workers

    def lost(self, worker: Worker) -> None:
        """The stream to a worker is over: whatever it had of this router's requests has failed, there as well."""
        self._ground.marks.hit("router lost a worker")
        for attempted in [each for each in self._live.values() if each.side(worker)]:
            side = attempted.side(worker)
            if side is not None:
                message = f"The {side.value} worker of this request is gone."
                failure = Failure("worker_lost", message, Fault(side.value), 502)
                self._send(worker, 0.0, worker.abandon, attempted.submission, ROUTER_GONE)
                self._feed(attempted, pairing.HalfFailed(side, failure))

    def silent(self, worker: Worker) -> None:
        """It answers nobody: before the commit its halves are given up."""
        self._ground.marks.hit("worker silent")
        for attempted in [each for each in self._live.values() if each.side(worker)]:
            side = attempted.side(worker)
            if side is not None and not pairing.is_committed(attempted.state):
                message = f"The {side.value} worker of this request does not answer."
                self._feed(
                    attempted, pairing.HalfFailed(side, Failure("worker_silent", message, Fault(side.value), 504))
                )

    # ------------------------------------------------------------ probes

    def probe(self, prefill: PrefillWorker, decode: DecodeWorker) -> None:
        """The router's own generation on one pair."""
        self._probes += 1
        number = FIRST_PROBE + self._probes
        ask = Ask(
            number=number, at_s=self._ground.loop.now_s, prompt=3, blocks=(7,), answer=2, most=2, tenant=-1,
            timeout_s=PROBE_TIMEOUT_S,
        )  # fmt: skip
        request = Request(ask, self._ground.texts.of(ask), 0, ask.at_s, (prefill.name, decode.name))
        self._open[number] = request
        self.pairs.breakers.probe_began((prefill.incarnation, decode.incarnation))
        self._ground.loop.after(PROBE_TIMEOUT_S, None, self._expire, request)
        self._begin(request, prefill, decode, 2)

    @property
    def probing(self) -> bool:
        return any(request.only for request in self._open.values())

    @property
    def idle(self) -> bool:
        """No request is open, and no frame is on its way to a worker that lives."""
        here, now_s = self._cluster.workers, self._ground.loop.now_s
        return not self._open and all(self._due_s.get(worker.incarnation, 0.0) <= now_s for worker in here)
