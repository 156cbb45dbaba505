"""Fair turns and quotas at the simulated router: carries out `protocol.fairness` and `protocol.quota`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quiesce.errors import RequestRejected
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.pairs import Pairs
from quiesce.protocol import fairness, quota

if TYPE_CHECKING:
    from quiesce.lab.swarm.router import Request

EXPECTED_TOKENS = 128
PER_TENANT = 64


class Turns:
    """Requests wait here until a pair has room; `begin` is called with the pair when it is their turn."""

    def __init__(self, ground: Ground, pairs: Pairs, begin: Callable[..., None]) -> None:
        self._ground, self._pairs, self._begin = ground, pairs, begin
        self._queue = fairness.Queue()
        self._waiting: dict[int, Request] = {}
        self._charged: dict[int, int] = {}
        self._buckets: dict[int, quota.Bucket] = {}
        self._largest = 1

    def take_quota(self, tenant: int) -> bool:
        """One request of a tenant's minute; False when it has none left."""
        per_minute, now_s = self._ground.p.per_minute, self._ground.loop.now_s
        if not per_minute:
            return True
        bucket = self._buckets.get(tenant) or quota.full(per_minute, now_s)
        self._buckets[tenant], wait_s = quota.take(bucket, 1, now_s)
        if wait_s:
            return False
        self._ground.checks.quota.taken(tenant, now_s, per_minute)
        return True

    def queue(self, request: Request) -> bool:
        """A place in its tenant's queue; False when that is full."""
        ask, tokens = request.ask, expected(request)
        waiting = fairness.Waiting(ask.number, tokens, ask.priority)
        self._queue, effects = fairness.step(
            self._queue, fairness.Arrived(_name(ask.tenant), waiting, weight_of(ask.tenant), PER_TENANT)
        )
        if effects:
            return False
        self._waiting[ask.number] = request
        self._largest = max(self._largest, tokens)
        self.place_waiting()
        return True

    def place_waiting(self) -> None:
        """Whoever's turn it is begins, for as long as there is room."""
        passed: frozenset[str] = frozenset()
        pairs = [pair for pair in self._pairs.usable() if self._pairs.has_room(pair)] if self._waiting else []
        while self._waiting and pairs and (head := fairness.first(self._queue, passed)):
            request = self._waiting[head[1].ticket]
            try:
                prefill, decode, most = self._pairs.choose(pairs, request)
            except RequestRejected:
                passed |= {head[0]}
                continue
            self._place(request)
            self._begin(request, prefill, decode, most)
            pairs = [pair for pair in pairs if self._pairs.has_room(pair)]

    def _place(self, request: Request) -> None:
        ask = request.ask
        del self._waiting[ask.number]
        self._step(fairness.Placed(_name(ask.tenant), ask.number))
        self._charged[ask.number] = expected(request)
        self._check_shares(ask.tenant, expected(request))

    def _check_shares(self, tenant: int, tokens: int) -> None:
        """Shares are compared in tokens over weight, of tenants that wait all the while."""
        fair = self._ground.checks.fairness
        waiting = {request.ask.tenant for request in self._waiting.values()}
        fair.placed(tenant, tokens / weight_of(tenant))
        reached = [flow.reached for flow in self._queue.flows.values()]
        for each in waiting:
            flow = self._queue.flows.get(_name(each))
            ahead = 0 if flow is None else flow.reached - min(reached)
            fair.waits(each, ahead / fairness.SCALE, self._largest)
        for each in range(self._ground.p.tenants):
            if each not in waiting:
                fair.gone(each)

    def over(self, request: Request) -> None:
        """A request has ended: it leaves the queue, or what it took is settled."""
        number, tenant = request.ask.number, _name(request.ask.tenant)
        if self._waiting.pop(number, None) is not None:
            self._step(fairness.Left(tenant, number))
        charged = self._charged.pop(number, None)
        if charged is not None:
            used = request.text.n_tokens + request.placed if request.placed else 0
            self._step(fairness.Settled(tenant, charged, used))
            weight = weight_of(request.ask.tenant)
            self._ground.checks.fairness.settled(request.ask.tenant, (used - charged) / weight)

    def _step(self, fact: Any) -> None:
        self._queue, _ = fairness.step(self._queue, fact)

    @property
    def empty(self) -> bool:
        return not self._waiting


def expected(request: Request) -> int:
    """What one answer is charged at first, its prompt included."""
    return request.text.n_tokens + min(request.ask.most or EXPECTED_TOKENS, EXPECTED_TOKENS)


def weight_of(tenant: int) -> int:
    return 1 + tenant % 2


def _name(tenant: int) -> str:
    return f"tenant {tenant}"
