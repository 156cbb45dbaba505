"""Whose request the router places next: tenants share by tokens and weight, one tenant's requests by priority.

Start-time fair queueing (Goyal, Vin and Cheng, 1996) with tokens for work. Each tenant has *reached* a point of
virtual time: the tokens it was charged, over its weight. Who has reached least is first, so no flood makes anybody
else wait for more than what is placed already. Who comes back from having nothing to ask begins where the others are:
idle time is not saved up. How long an answer will be is not known when its request is placed; what it took is settled
at its end.

Priorities order one tenant's own requests, and never those of two: shares among tenants are the operator's to give.

`step(queue, fact) -> (queue', effects)`, pure like the workers' machines.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from immutables import Map
from msgspec.structs import replace

SCALE = 1 << 20
"""Virtual time per token of a tenant of weight 1. Integers: shares do not drift."""


class Waiting(msgspec.Struct, frozen=True):
    """A request: `ticket` rises with arrival, `tokens` is what it is expected to take, higher `priority` goes first."""

    ticket: int
    tokens: int
    priority: int = 0


class Flow(msgspec.Struct, frozen=True):
    """One tenant; `waiting` is in the order in which it will be placed."""

    waiting: tuple[Waiting, ...] = ()
    reached: int = 0
    weight: int = 1


class Queue(msgspec.Struct, frozen=True):
    """`reached` is where the tenant was that was placed last, and never goes back.

    A tenant is in `flows` while it has something to wait for, or has had more than its share.
    """

    flows: Map[str, Flow] = Map()
    reached: int = 0


# ---------------------------------------------------------------- facts


class Arrived(msgspec.Struct, frozen=True):
    """Refused when `most` of the tenant's requests wait already; None: it belongs to a request that was let in."""

    tenant: str
    waiting: Waiting
    weight: int = 1
    most: int | None = None


class Left(msgspec.Struct, frozen=True):
    """Its client left, its deadline passed, or the router stops."""

    tenant: str
    ticket: int


class Placed(msgspec.Struct, frozen=True):
    """A pair of workers had room for it."""

    tenant: str
    ticket: int


class Settled(msgspec.Struct, frozen=True):
    """A request that was charged `charged_tokens` when it was placed is over, and took `used_tokens`."""

    tenant: str
    charged_tokens: int
    used_tokens: int


Fact = Arrived | Left | Placed | Settled

# ---------------------------------------------------------------- effects


class Refused(msgspec.Struct, frozen=True):
    """As many of this tenant's requests wait as may; this one does not."""

    ticket: int


class Disregarded(msgspec.Struct, frozen=True):
    """The fact changed nothing: nobody waits with this ticket."""


Effect = Refused | Disregarded


def step(queue: Queue, fact: Fact) -> tuple[Queue, tuple[Effect, ...]]:
    """The next queue and what is to be told."""
    match fact:
        case Arrived():
            return _arrived(queue, fact)
        case Left(tenant=tenant, ticket=ticket):
            return _taken_out(queue, tenant, ticket, placed=False)
        case Placed(tenant=tenant, ticket=ticket):
            return _taken_out(queue, tenant, ticket, placed=True)
        case Settled(tenant=tenant, charged_tokens=charged, used_tokens=used):
            flow = _flow(queue, tenant)
            return _with(queue, tenant, replace(flow, reached=settled(flow, charged, used))), ()
        case _:  # pragma: no cover
            assert_never(fact)


def first(queue: Queue, without: frozenset[str] = frozenset()) -> tuple[str, Waiting] | None:
    """Who is to be placed next, by tenant. `without`: tenants whose first request fits no pair that has room now."""
    heads = [
        (flow.reached, flow.waiting[0].ticket, tenant)
        for tenant, flow in queue.flows.items()
        if flow.waiting and tenant not in without
    ]
    if not heads:
        return None
    tenant = min(heads)[2]
    return tenant, queue.flows[tenant].waiting[0]


def count(queue: Queue, tenant: str) -> int:
    """How many of a tenant's requests wait."""
    return len(queue.flows[tenant].waiting) if tenant in queue.flows else 0


# ---------------------------------------------------------------- rules


def may_wait(flow: Flow, most: int | None) -> bool:
    """Each tenant has a queue of its own: nobody's flood fills another's."""
    return most is None or len(flow.waiting) < most


def goes_before(one: Waiting, other: Waiting) -> bool:
    """Within a tenant: the higher priority, then the earlier arrival."""
    return (-one.priority, one.ticket) < (-other.priority, other.ticket)


def charged(flow: Flow, tokens: int) -> int:
    """Where a tenant is after one more of its requests was placed."""
    return flow.reached + tokens * SCALE // flow.weight


def settled(flow: Flow, charged_tokens: int, used_tokens: int) -> int:
    """Where a tenant is once it is known what its request took."""
    return flow.reached + (used_tokens - charged_tokens) * SCALE // flow.weight


def is_even(flow: Flow, queue: Queue) -> bool:
    """Whether a tenant is forgotten: nothing of it waits, and it has had no more than others. Nothing is saved up."""
    return not flow.waiting and flow.reached <= queue.reached


# ---------------------------------------------------------------- transitions


def _arrived(queue: Queue, fact: Arrived) -> tuple[Queue, tuple[Effect, ...]]:
    flow = _flow(queue, fact.tenant)
    if not may_wait(flow, fact.most):
        return queue, (Refused(fact.waiting.ticket),)
    before = tuple(each for each in flow.waiting if goes_before(each, fact.waiting))
    waiting = (*before, fact.waiting, *flow.waiting[len(before) :])
    return _with(queue, fact.tenant, Flow(waiting, flow.reached, fact.weight)), ()


def _taken_out(queue: Queue, tenant: str, ticket: int, placed: bool) -> tuple[Queue, tuple[Effect, ...]]:
    flow = _flow(queue, tenant)
    found = [each for each in flow.waiting if each.ticket == ticket]
    if not found:
        return queue, (Disregarded(),)
    left = replace(flow, waiting=tuple(each for each in flow.waiting if each.ticket != ticket))
    if placed:
        left = replace(left, reached=charged(flow, found[0].tokens))
        return _forgetful(replace(_with(queue, tenant, left), reached=max(queue.reached, flow.reached))), ()
    return _with(queue, tenant, left), ()


def _flow(queue: Queue, tenant: str) -> Flow:
    """A tenant that is not remembered is where the others are."""
    return queue.flows.get(tenant) or Flow(reached=queue.reached)


def _with(queue: Queue, tenant: str, flow: Flow) -> Queue:
    return _forgetful(replace(queue, flows=queue.flows.set(tenant, flow)))


def _forgetful(queue: Queue) -> Queue:
    """The queue without tenants that need not be remembered."""
    flows = queue.flows
    for tenant, flow in queue.flows.items():
        if is_even(flow, queue):
            flows = flows.delete(tenant)
    return replace(queue, flows=flows)
