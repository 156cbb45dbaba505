"""The tokens of one request, over as many tries as it takes and may take."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from quiesce.errors import RequestRejected
from quiesce.ids import Incarnation
from quiesce.protocol.breaker import DRAINING, Cause
from quiesce.protocol.dispatch import Tokens
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Failure
from quiesce.protocol.pairing import CallOff, ClientLeft, GaveUp, Stopped, TryFact
from quiesce.router.failures import CLIENT_GONE, DEADLINE, SERVER_STOPPING, GenerationFailed
from quiesce.router.fleet import Fleet
from quiesce.router.halves import Halves
from quiesce.router.order import Order
from quiesce.router.pairs import Pair, choose
from quiesce.router.turns import Turn, Turns
from quiesce.router.warmth import beginnings
from quiesce.telemetry.logs import ids

_PATIENCE_S = 1.0
_RETRY_PATIENCE_S = 10.0
"""How long what had begun waits for a pair, once there is none.

A second crash within a minute costs the worker's next life a pause of a second, a spare needs one or two more to greet
as that worker, and a fresh process several. Whoever asks only now can as well ask again.
"""
_LOOK_AGAIN_S = 2.0

_numbers = itertools.count()
_log = logging.getLogger(__name__)


class Generation:
    """`tokens` may be iterated once, and must be closed (`aclosing`): that is what cancels both halves.

    `ending` is what they are told when it is closed early; whoever ends it sets it. `proved` names the pair that
    finished it, `retried` counts tries that another one may follow: what they gave is void. `after_handoff`: a
    client that leaves lets a hand-off that is under way finish first. With `turns` it waits for its turn first;
    `used_tokens` is what it took of the workers, which is nothing before that, nor for tries that are void.
    """

    def __init__(
        self,
        fleet: Fleet,
        order: Order,
        retries: int = 0,
        only: Pair | None = None,
        *,
        turns: Turns | None = None,
        bounded: bool = True,
        after_handoff: bool = False,
    ) -> None:
        self.ending: TryFact = ClientLeft(CLIENT_GONE) if after_handoff else CallOff(CLIENT_GONE)
        self.retried = 0
        self.prompt_told: Sequence[TokenLogprobs] = ()
        self.proved: tuple[Incarnation, ...] | None = None
        self.used_tokens = 0
        self._turns, self._bounded = turns, bounded
        self._turn: Turn | None = None
        self._cached_tokens = 0
        self._number = next(_numbers)
        self._fleet, self._order = fleet, order
        self._only = only.lives if only else None
        self._tries_left = retries + 1
        self._failed_lives: frozenset[Incarnation] = frozenset()
        self._failure: Failure | None = None
        self._deadline_s = None if order.timeout_s is None else time.monotonic() + order.timeout_s

    @property
    def token_ids(self) -> bytes:
        """The prompt's, packed."""
        return self._order.token_ids

    @functools.cached_property
    def _beginnings(self) -> tuple[bytes, ...]:
        return beginnings(self._order.token_ids, self._order.salt)

    async def tokens(self) -> AsyncGenerator[Tokens, None]:
        """What decode sends, the last frame with `finish`.

        Raises RequestRejected before any worker was told, GenerationFailed afterwards.
        """
        try:
            while self.proved is None:
                pair, limit_tokens = await self._seat()
                self._turns = None  # who tries again has had its turn
                async with aclosing(self._try(pair, limit_tokens)) as frames:
                    async for frame in frames:
                        yield frame
        finally:
            if self._turn is not None:
                self._turn.settle(self.used_tokens)

    async def _seat(self) -> tuple[Pair, int]:
        """Where the next try can begin. What keeps a request from being tried again is not why it failed."""
        try:
            return await self._turn_at(self._turns) if self._turns else await self._choose()
        except RequestRejected:
            if self._failure is None:
                raise
            raise GenerationFailed(self._failure) from None

    async def _turn_at(self, turns: Turns) -> tuple[Pair, int]:
        """Wait in the router's queue. Now and then, and at first, see whether anybody could serve this at all."""
        await self._choose()
        with turns.queued(self._order, self._place, bounded=self._bounded) as self._turn:
            while (seat := await self._turn.wait(min(_LOOK_AGAIN_S, self._left_s() or _LOOK_AGAIN_S))) is None:
                if self._deadline_s is not None and time.monotonic() >= self._deadline_s:
                    raise GenerationFailed(DEADLINE)
                await self._look_again()
        if any(pair.workers == seat.pair.workers for pair in self._pairs()):
            return seat.pair, seat.limit_tokens
        return await self._choose()  # one of them was lost just now

    async def _look_again(self) -> None:
        """Raises when waiting is of no use any more. Workers whose own queues are full are worth waiting for."""
        try:
            await self._choose()
        except RequestRejected as error:
            if error.status != 429:
                raise

    def _place(self, has_room: Callable[[Pair], bool]) -> tuple[Pair, int] | None:
        """Where this can begin now. Raises RequestRejected when no pair that has room admits it."""
        pairs = [pair for pair in self._pairs() if has_room(pair)]
        return self._best(pairs) if pairs else None

    async def _try(self, pair: Pair, limit_tokens: int) -> AsyncGenerator[Tokens, None]:
        """One try, to its end or its failure. Raises GenerationFailed if no other may follow."""
        lives = pair.lives
        halves = self._start(pair, limit_tokens)
        first = True
        try:
            while self.proved is None:
                event = await self._next(halves)
                if isinstance(event, GaveUp):
                    self._blame(lives, event)
                    self._failed_lives |= frozenset(lives)
                    self._retry_or_raise(halves, event)
                    return
                self.proved = lives if event.finish else None
                self.prompt_told = halves.prompt_told
                self._use(event)
                if first:
                    self._fleet.warmth.remember(self._beginnings, lives)
                    first = False
                yield event
        finally:
            self._praise(lives)
            self._fleet.end(halves, self.ending)

    def _use(self, tokens: Tokens) -> None:
        """What a prefix cache supplied was not computed."""
        cached = max(0, tokens.cached_tokens - self._cached_tokens)
        self._cached_tokens += cached
        self.used_tokens = max(1, self.used_tokens + len(tokens.token_ids) - cached)

    async def check(self) -> None:
        """Raises RequestRejected when no worker could be asked now, as `tokens` would."""
        await self._choose()

    def _start(self, pair: Pair, limit_tokens: int) -> Halves:
        self._tries_left -= 1
        self.used_tokens, self._cached_tokens = self._order.prompt_tokens, 0
        submit = self._order.submit(pair.prefill_name, limit_tokens, self._left_s())
        return self._fleet.start(submit, pair.decode, pair.prefill, kept=self._order.kept)

    async def _next(self, halves: Halves) -> Tokens | GaveUp:
        try:
            async with asyncio.timeout(self._left_s()):
                return await halves.next()
        except TimeoutError:
            self.ending = CallOff(DEADLINE)
            raise GenerationFailed(DEADLINE) from None

    async def _choose(self) -> tuple[Pair, int]:
        pairs = self._pairs() or await self._awaited_pairs()
        if not pairs:
            self._say_none(self._fleet.why_no_pair())
            raise RequestRejected("No worker can serve now.", code="no_workers", status=503)
        return self._best(pairs)

    def _say_none(self, reason: str) -> None:
        """Each request meets it again: a reason that is new is said, one that stays only now and then."""
        if (unsaid := self._fleet.refusals.unsaid(reason)) is not None:
            _log.warning("no worker can serve", extra=ids(reason=reason, unsaid=unsaid or None))

    def _best(self, pairs: list[Pair]) -> tuple[Pair, int]:
        warmth = self._fleet.warmth.shares(self._beginnings if len(pairs) > 1 else ())
        return choose(pairs, self._order, self._failed_lives, self._number, self._fleet.breakers.doubts, warmth)

    async def _awaited_pairs(self) -> list[Pair]:
        """A worker that was here a moment ago may be back in a moment: its stream was lost, or it was just slow."""
        if self._only or not (self.retried or self._fleet.had_pair_lately()):
            return []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s()):
                while not (self._pairs() or self._fleet.called_off):
                    await self._fleet.wait_for_change()
        if self._fleet.called_off:
            raise GenerationFailed(SERVER_STOPPING)
        return self._pairs()

    def _patience_s(self) -> float:
        """Where breakers keep a pair from clients, nothing new is about to come."""
        patience_s = _RETRY_PATIENCE_S if self.retried and not self._fleet.usable() else _PATIENCE_S
        return min(patience_s, self._left_s() or patience_s)

    def _pairs(self) -> list[Pair]:
        """Probes are sent where clients may not be."""
        if self._only:
            return [pair for pair in self._fleet.usable() if pair.lives == self._only]
        return self._fleet.pairs()

    def _blame(self, lives: tuple[Incarnation, ...], end: GaveUp) -> None:
        """A request counts once: one that fails on a second pair too is suspect itself. Probes speak for themselves."""
        if not (self.retried or self._only):
            self._fleet.breakers.failed(lives, end.failure, _cause(self._order))

    def _praise(self, lives: tuple[Incarnation, ...]) -> None:
        if not self._only and (self.proved or isinstance(self.ending, Stopped)):
            self._fleet.breakers.served(lives)

    def _retry_or_raise(self, halves: Halves, end: GaveUp) -> None:
        """A full queue is worth another try only somewhere else."""
        failure = self._failure = end.failure
        if end.may_retry:
            self.used_tokens = 0
        fields = ids(request=halves.request, code=failure.code, fault=failure.fault)
        # At the end all that runs is called off at once, and that is said once.
        level = logging.DEBUG if failure == SERVER_STOPPING else logging.WARNING
        _log.log(level, "a try failed: %s", failure.message, extra=fields)
        elsewhere = failure.status != 429 or len(self._pairs()) > 1
        if failure.code == DRAINING and self._untried():
            self._tries_left += 1  # it said so, and nothing was begun: that is no try
        if self._tries_left <= 0 or not (end.may_retry and elsewhere):
            raise GenerationFailed(failure)
        self.retried += 1
        self._number = next(_numbers)

    def _untried(self) -> bool:
        return any(self._failed_lives.isdisjoint(pair.lives) for pair in self._pairs())

    def _left_s(self) -> float | None:
        return None if self._deadline_s is None else max(0.001, self._deadline_s - time.monotonic())


def _cause(order: Order) -> Cause:
    return Cause(
        order.tenant.name, hashlib.blake2b(order.token_ids, digest_size=8, person=b"quiesce-cause").hexdigest()
    )
