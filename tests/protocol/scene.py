"""Names and short-cuts for tests of single steps: two decode ranks at most, two prefill ranks at most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quiesce.ids import Attempt, AttemptKey, Digest, Incarnation, PageTag, Peer, RequestId, Room
from quiesce.protocol import breaker, lender, puller, receiver, sender
from quiesce.protocol.attempt import PullerState, ReceiverState
from quiesce.protocol.lender_io import Computed, LenderEffect, LenderInput
from quiesce.protocol.messages import (
    Ask,
    Body,
    Done,
    Envelope,
    Failure,
    Fault,
    Lease,
    Offer,
    OpenAttempts,
    Publish,
)
from quiesce.protocol.puller_io import PullerEffect, PullerInput
from quiesce.protocol.receiver_io import Received, ReceiverEffect, ReceiverInput, Reserve
from quiesce.protocol.record import SenderState
from quiesce.protocol.sender_io import Heard, SenderEffect, SenderInput

D_LIFE = Incarnation("d" * 32)
D0, D1 = Peer(0, D_LIFE), Peer(1, D_LIFE)
P0, P1 = Peer(0, Incarnation("e0".ljust(32, "0"))), Peer(1, Incarnation("e1".ljust(32, "0")))
P0_NEXT = Peer(0, Incarnation("e2".ljust(32, "0")))
STRANGER = Peer(0, Incarnation("f" * 32))
ROOM, DIGEST, OTHER_DIGEST = Room(7), Digest("a" * 32), Digest("b" * 32)
GONE = Failure("client_gone", "The client left.", Fault.CLIENT, 499)
BROKEN = Failure("compute_failed", "It broke.", Fault.PREFILL)
DONE = Done(DIGEST, (1,), "", 5)
ONE = Attempt(1)
RID = RequestId("r1")
KEY, KEY1 = AttemptKey(D0, ONE), AttemptKey(D1, ONE)


def lease(pages: int = 1, tag: int = 9) -> Lease:
    return Lease(PageTag(tag), pages, b"\0" * 8, 0)


def reserve(*grants: Peer, ranks: int = 1, request: RequestId = RID, pages: int = 1) -> Reserve:
    return Reserve(request, ROOM, DIGEST, tuple(lease(pages) for _ in range(ranks)), grants or (P0,), 1)


def from_prefill(body: Body, sender: Peer = P0, to: Peer = D0, attempt: int = 1) -> Received:
    return Received(Envelope(sender, to, Attempt(attempt), body))


def from_decode(
    body: Body, sender: Peer = D0, to: Peer = P0, attempt: int = 1, still: tuple[int, ...] = (1,), watermark: int = 2
) -> Heard:
    told = OpenAttempts(Attempt(watermark), tuple(Attempt(each) for each in still))
    return Heard(Envelope(sender, to, Attempt(attempt), body, told))


def publish(pages: int = 1, held_tokens: int = 0, digest: Digest = DIGEST) -> Publish:
    return Publish(ROOM, digest, lease(pages), 1, held_tokens)


def decode_runs(*facts: ReceiverInput, state: ReceiverState | None = None, **given: Any) -> tuple[ReceiverState, Any]:
    """The state after `facts` (from a fresh machine with `given` settings) and the effects of the last."""
    state = receiver.start(D_LIFE, **given) if state is None else state
    effects: tuple[ReceiverEffect, ...] = ()
    for fact in facts:
        state, effects = receiver.step(state, fact)
    return state, effects


def prefill_runs(*facts: SenderInput, state: SenderState | None = None, **given: Any) -> tuple[SenderState, Any]:
    """The same for a sender."""
    state = sender.start(P0, **given) if state is None else state
    effects: tuple[SenderEffect, ...] = ()
    for fact in facts:
        state, effects = sender.step(state, fact)
    return state, effects


def ask(digest: Digest = DIGEST) -> Ask:
    return Ask(ROOM, digest, 1)


def offer(pages: int = 1, digest: Digest = DIGEST, token: int = 5) -> Offer:
    return Offer(digest, lease(pages, tag=77), "", token)


def lent(*tags: int, request: RequestId = RID) -> Computed:
    """The prompt is computed; a window for each tag."""
    return Computed(request, tuple(lease(tag=tag) for tag in tags or (77,)), 5)


def puller_runs(*facts: PullerInput, state: PullerState | None = None, **given: Any) -> tuple[PullerState, Any]:
    """The same for a puller."""
    state = puller.start(D_LIFE, **given) if state is None else state
    effects: tuple[PullerEffect, ...] = ()
    for fact in facts:
        state, effects = puller.step(state, fact)
    return state, effects


def lender_runs(*facts: LenderInput, state: SenderState | None = None) -> tuple[SenderState, Any]:
    """The same for a lender."""
    state = lender.start(P0) if state is None else state
    effects: tuple[LenderEffect, ...] = ()
    for fact in facts:
        state, effects = lender.step(state, fact)
    return state, effects


def kinds(effects: Iterable[Any]) -> list[str]:
    """Effect names in order; messages by their body's."""
    return [
        type(effect.envelope.body).__name__ if hasattr(effect, "envelope") else type(effect).__name__
        for effect in effects
    ]


def breaker_after(*facts: breaker.BreakerFact) -> breaker.Breaker:
    """A breaker for which two failures are enough."""
    state = breaker.Breaker()
    for fact in facts:
        state, _ = breaker.step(state, fact, 2)
    return state


def failure_of(prompt: str, tenant: str) -> breaker.Failed:
    return breaker.Failed(breaker.Cause(tenant, prompt))
