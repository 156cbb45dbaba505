"""Requests wait here, fairly, until a pair of workers has room: carries out `protocol.fairness`.

Workers have queues too, but theirs are first come, first served among tenants. So each gets no more than keeps it busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from quiesce.errors import QuiesceError, invariant
from quiesce.protocol import fairness, quota
from quiesce.router.failures import SERVER_STOPPING, GenerationFailed, Throttled
from quiesce.router.fleet import Fleet
from quiesce.router.link import WorkerLink
from quiesce.router.meter import Meter
from quiesce.router.order import Order
from quiesce.router.pairs import Pair
from quiesce.router.settings import RouterSettings

_REMEMBERED = 256

Place = Callable[[Callable[[Pair], bool]], tuple[Pair, int] | None]
"""Given what tells whether a pair has room: the pair that takes a request now, and its answer's limit in tokens."""


class Seat(msgspec.Struct, frozen=True, eq=False):
    """Room at a pair of workers, kept for a request until its try has begun."""

    pair: Pair
    limit_tokens: int


class Turn:
    """One request's place in the queue. `seat` is there when it is its turn."""

    def __init__(self, turns: Turns, ticket: int, order: Order, place: Place) -> None:
        self.order, self.ticket, self.place = order, ticket, place
        self.since_s = turns.clock()
        self.seat: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()
        self._turns = turns
        self._charged = False

    @property
    def tenant(self) -> str:
        return self.order.tenant.name

    async def wait(self, seconds: float | None) -> Seat | None:
        """The seat; None when it is not there within `seconds`. Whoever takes it begins a try before it awaits again.

        Raises GenerationFailed when the server stops.
        """
        await asyncio.wait({self.seat}, timeout=seconds)
        if not self.seat.done():
            return None
        seat = self.seat.result()
        reserve(seat.pair, -1)
        self._charged = True
        return seat

    def abandon(self) -> None:
        """A seat that came and was not taken is given back, and what was charged for it."""
        if self._charged or not self.seat.done() or self.seat.exception():
            return
        reserve(self.seat.result().pair, -1)
        self._turns.settle(self.order, 0)
        self._turns.place_waiting()

    def settle(self, used_tokens: int) -> None:
        """The request that had this turn is over."""
        if self._charged:
            self._turns.settle(self.order, used_tokens)
            self._charged = False


class Turns:
    """Lives on one event loop. `clock` is monotonic seconds."""

    def __init__(
        self, fleet: Fleet, settings: RouterSettings, meter: Meter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._fleet = fleet
        self._settings = settings
        self._meter = meter
        self._queue = fairness.Queue()
        self._waiting: dict[int, Turn] = {}
        self._placed_s: dict[str, deque[float]] = {}
        self._tickets = itertools.count()
        fleet.on_room = self.place_waiting

    @contextlib.contextmanager
    def queued(self, order: Order, place: Place, *, bounded: bool) -> Iterator[Turn]:
        """A place in the queue, until its turn came or the block ends. Raises Throttled when the tenant's is full."""
        turn = Turn(self, next(self._tickets), order, place)
        waiting = fairness.Waiting(turn.ticket, order.expected_tokens, order.priority)
        most = self._settings.queue_per_tenant if bounded else None
        if self._step(fairness.Arrived(turn.tenant, waiting, order.tenant.weight, most)):
            raise self._full(turn.tenant)
        self._waiting[turn.ticket] = turn
        self._count(turn.tenant)
        try:
            self.place_waiting()
            yield turn
        finally:
            self._leave(turn)

    def place_waiting(self) -> None:
        """Whoever's turn it is gets a seat, for as long as there are any. Called when that may have changed."""
        if self._waiting and self._fleet.called_off:
            self._call_off()
        passed: frozenset[str] = frozenset()
        while self._waiting and self._some_room() and (head := fairness.first(self._queue, passed)):
            turn = self._waiting[head[1].ticket]
            if placed := self._placed(turn):
                self._seat(turn, Seat(*placed))
            else:
                passed |= {turn.tenant}

    def count(self, wanted: Callable[[Order], bool]) -> int:
        """How many of those that wait are `wanted`."""
        return sum(wanted(turn.order) for turn in self._waiting.values())

    def has_room(self, pair: Pair) -> bool:
        """Whether this pair is not as busy with this router's requests as it should be."""
        if self._is_full(pair.decode):
            return False
        return pair.prefill is None or pair.decode.awaited[pair.prefill] < self._settings.prefill_window

    def settle(self, order: Order, used_tokens: int) -> None:
        self._step(fairness.Settled(order.tenant.name, order.expected_tokens, used_tokens))

    # ------------------------------------------------------------ places

    def _placed(self, turn: Turn) -> tuple[Pair, int] | None:
        """What is wrong with a request is for itself to find out; here it only has no place."""
        try:
            return turn.place(self.has_room)
        except QuiesceError:
            return None

    def _seat(self, turn: Turn, seat: Seat) -> None:
        invariant(not self._step(fairness.Placed(turn.tenant, turn.ticket)), "who_is_placed_waits", turn.tenant)
        del self._waiting[turn.ticket]
        reserve(seat.pair, 1)
        now_s = self.clock()
        self._placed_s.setdefault(turn.tenant, deque(maxlen=_REMEMBERED)).append(now_s)
        self._meter.placed(turn.tenant, now_s - turn.since_s)
        self._count(turn.tenant)
        turn.seat.set_result(seat)

    def _leave(self, turn: Turn) -> None:
        """Out of the queue if it is still there; a seat that nobody took is somebody else's."""
        if self._waiting.pop(turn.ticket, None) is not None:
            self._step(fairness.Left(turn.tenant, turn.ticket))
            self._count(turn.tenant)
        turn.abandon()

    def _call_off(self) -> None:
        for turn in list(self._waiting.values()):
            turn.seat.set_exception(GenerationFailed(SERVER_STOPPING))
            self._leave(turn)

    def _some_room(self) -> bool:
        return any(link.generates and not self._is_full(link) for link in self._fleet.present)

    def _is_full(self, link: WorkerLink) -> bool:
        return link.halves + link.reserved >= self._window(link)

    def _window(self, link: WorkerLink) -> int:
        """Its batch, and a quarter of it on its way there: it never waits for the router."""
        batch = link.welcome.max_running if link.welcome else 0
        return self._settings.decode_window or batch + max(self._settings.prefill_window, batch // 4)

    # ------------------------------------------------------------ the queue

    def _step(self, fact: fairness.Fact) -> tuple[fairness.Effect, ...]:
        self._queue, effects = fairness.step(self._queue, fact)
        return effects

    def _count(self, tenant: str) -> None:
        self._meter.queued(tenant, fairness.count(self._queue, tenant))

    def _full(self, tenant: str) -> Throttled:
        waiting = fairness.count(self._queue, tenant)
        times_s = self._placed_s.get(tenant, ())
        over_s = self.clock() - times_s[0] if times_s else 0.0
        after_s = quota.retry_after_s(waiting, len(times_s), over_s)
        return Throttled(f"{waiting} requests of this tenant wait already.", after_s, code="queue_full")


def reserve(pair: Pair, count: int) -> None:
    """Keep room for one more request (1), or no longer (-1)."""
    for link in pair.workers:
        link.reserved += count
    if pair.prefill is not None:
        pair.decode.awaited[pair.prefill] += count
