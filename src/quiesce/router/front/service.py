"""The router's service as one worker's front uses it: its own key, and pairs that somebody else chose."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Self

import msgspec
from starlette.datastructures import Headers

from quiesce.api.asked import Asked
from quiesce.errors import InvariantBroken, RequestRejected
from quiesce.protocol.dispatch import Tokens
from quiesce.router.access import ApiKeys
from quiesce.router.front.bootstrap import Bootstrap, leg_of
from quiesce.router.front.leg import Leg, Meetings
from quiesce.router.generation import Generation
from quiesce.router.link import WorkerLink
from quiesce.router.order import Order
from quiesce.router.pairs import Pair, unfit
from quiesce.router.service import Service
from quiesce.router.tenants import MAX_PRIORITY, Tenant
from quiesce.router.turns import Turns

FRONTS = Tenant(name="(fronts)", salt="fronts", earliest_priority=-MAX_PRIORITY)
"""Everybody who comes through a front: who they are is known to the other router alone.

No limits, and a salt of its own: what they warmed in the prefix caches is theirs, and only theirs.
"""


class FrontKeys(ApiKeys):
    """The other router's one key, or none."""

    def check(self, headers: Headers) -> Tenant:
        super().check(headers)
        return FRONTS


class FrontOrder(Order, frozen=True, kw_only=True):
    """An order that goes to `leg`'s pair and to no other."""

    leg: Leg


class FrontGeneration(Generation):
    """One try on one pair: who sent the request here decides about another. `leg` hears of the first token."""

    def __init__(
        self, service: Service, order: FrontOrder, *, turns: Turns | None = None, bounded: bool = True
    ) -> None:
        after_handoff = service.settings.on_disconnect == "after-handoff"
        pair = order.leg.pair
        super().__init__(service.fleet, order, only=pair, turns=turns, bounded=bounded, after_handoff=after_handoff)
        self._leg = order.leg

    async def tokens(self) -> AsyncGenerator[Tokens, None]:
        first = True
        async with aclosing(super().tokens()) as frames:
            async for tokens in frames:
                if first:
                    self._leg.begun()
                first = False
                yield tokens


class FrontService(Service):
    """Shares everything with the router's service but who may ask, and which pair serves. `link` is its worker's.

    `ports` has the link of each front by its port, this one included; it is filled when all ports are known.
    """

    link: WorkerLink
    ports: Mapping[int, WorkerLink]
    meetings: Meetings

    @classmethod
    def of(cls, service: Service, link: WorkerLink, ports: Mapping[int, WorkerLink], meetings: Meetings) -> Self:
        front = cls.__new__(cls)
        front.__dict__.update(copy.copy(service.__dict__))
        front.keys = FrontKeys(_keys(service.settings.front_key))
        front.link, front.ports, front.meetings = link, ports, meetings
        return front

    @property
    def role(self) -> str:
        """What the worker is, or "" while it is not here."""
        return self.link.welcome.role if self.link.welcome else ""

    def trouble(self) -> str:
        """Why the worker cannot be used now, or ""."""
        if self.stopping.leaving:
            return "the server is stopping"
        problem = unfit(self.link, self.text.name)
        if not problem and self.role == "decode" and not self.link.peers:
            return "no prefill worker is connected to it"
        return problem

    def leg(self, bootstrap: Bootstrap) -> Leg:
        """The pair that a request at this front is for. Raises RequestRejected, which prefill's leg learns of."""
        try:
            return self._leg(bootstrap)
        except RequestRejected as error:
            self.meetings.refuse(bootstrap.rooms, error)
            raise

    def _leg(self, bootstrap: Bootstrap) -> Leg:
        if not self.role:
            raise RequestRejected("The worker is not connected.", code="no_workers", status=503)
        if self.role == "aggregated":
            return Leg(Pair(self.link), ())
        if not bootstrap.rooms:
            message = "A decode worker needs bootstrap_room: ask the router that pairs it, or `quiesce router`."
            raise RequestRejected(message, code="bootstrap_missing", param="bootstrap_room")
        return Leg(Pair(self.link, self._prefill(bootstrap.port)), bootstrap.rooms)

    def _prefill(self, port: int | None) -> WorkerLink:
        links = {at: link for at, link in self.ports.items() if link.welcome and link.welcome.role == "prefill"}
        if port is None and len(links) == 1:
            return next(iter(links.values()))
        if port is None or port not in links:
            known = ", ".join(str(at) for at in sorted(links)) or "none"
            message = f"bootstrap_port must be the port of a prefill worker's front here: {known}."
            raise RequestRejected(message, code="unknown_prefill", param="bootstrap_port")
        return links[port]

    async def orders(self, asked: Asked, tenant: Tenant = FRONTS) -> list[Order]:
        """Each pair has a queue of its own: who waits for one that is full keeps nobody from another one."""
        leg = leg_of(asked)
        queue = msgspec.structs.replace(tenant, name=" ".join((tenant.name, *leg.workers)))
        return [FrontOrder(**msgspec.structs.asdict(order), leg=leg) for order in await super().orders(asked, queue)]

    def generation(self, order: Order, *, bounded: bool = True) -> Generation:
        """Whoever sent it chose the pair; the moment is this router's choice, which is fair to all its tenants."""
        self.stopping.check()
        return FrontGeneration(self, _front_order(order), turns=self.turns, bounded=bounded)

    def probe(self, order: FrontOrder) -> Generation:
        """It does not queue: how long others wait says nothing of a worker's health."""
        self.stopping.check()
        return FrontGeneration(self, order)

    def queued(self) -> int:
        """Requests for this worker, through any front, that wait for their turn."""
        return self.turns.count(lambda order: isinstance(order, FrontOrder) and self.link.name in order.leg.workers)


def _front_order(order: Order) -> FrontOrder:
    if not isinstance(order, FrontOrder):
        raise InvariantBroken("invariant a_front_knows_its_pair is broken")
    return order


def _keys(key: str | None) -> Iterable[str]:
    return () if key is None else (key,)
