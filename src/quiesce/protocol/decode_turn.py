"""One step of a machine of decode under way: the state so far and the effects so far, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from quiesce.ids import Attempt, Peer
from quiesce.protocol import receiver_rules as rules
from quiesce.protocol.attempt import AnyState, AttemptState, Destination, Handoff, PullerState, ReceiverState
from quiesce.protocol.messages import Body, Envelope, Publish
from quiesce.protocol.reasons import Reason
from quiesce.protocol.receiver_io import Ignored, Send

S = TypeVar("S", bound=AnyState)


class DecodeTurn(Generic[S]):
    """What the transitions write to; `step` makes one and takes it apart again."""

    def __init__(self, state: S) -> None:
        self.state = state
        self.effects: list[Any] = []

    def emit(self, *effects: Any) -> None:
        self.effects += effects

    def ignore(self, kind: str, reason: Reason) -> None:
        self.effects.append(Ignored(kind, reason.value))

    def put(self, attempt: Handoff) -> None:
        self.state = replace(self.state, attempts=self.state.attempts.set(attempt.attempt, attempt))

    def forget(self, attempt: Attempt) -> None:
        self.state = replace(self.state, attempts=self.state.attempts.delete(attempt))

    def send(self, attempt: Attempt, destinations: Iterable[Destination], body: Body) -> None:
        still_open = rules.open_attempts(self.state)
        for each in destinations:
            me = Peer(each.decode_rank, self.state.incarnation)
            self.effects.append(Send(Envelope(me, each.peer, attempt, body, still_open)))


AnyTurn = DecodeTurn[Any]
PullerTurn = DecodeTurn[PullerState]


class ReceiverTurn(DecodeTurn[ReceiverState]):
    """The receiver's."""

    def publish(self, attempt: AttemptState, destinations: Iterable[Destination]) -> None:
        for each in destinations:
            lease = attempt.leases[each.decode_rank]
            body = Publish(attempt.room, attempt.digest, lease, attempt.prompt_tokens, attempt.held_tokens)
            self.send(attempt.attempt, [each], body)
