"""One step of the receiver machine under way: the state so far and the effects so far, in order."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from quiesce.ids import Attempt, Peer
from quiesce.protocol import receiver_rules as rules
from quiesce.protocol.attempt import AttemptState, Destination, ReceiverState
from quiesce.protocol.messages import Body, Envelope, Publish
from quiesce.protocol.reasons import Reason
from quiesce.protocol.receiver_io import Ignored, ReceiverEffect, Send


class ReceiverTurn:
    """What the transitions write to; `step` makes one and takes it apart again."""

    def __init__(self, state: ReceiverState) -> None:
        self.state = state
        self.effects: list[ReceiverEffect] = []

    def emit(self, *effects: ReceiverEffect) -> None:
        self.effects += effects

    def ignore(self, kind: str, reason: Reason) -> None:
        self.effects.append(Ignored(kind, reason.value))

    def put(self, attempt: AttemptState) -> None:
        self.state = replace(self.state, attempts=self.state.attempts.set(attempt.attempt, attempt))

    def forget(self, attempt: Attempt) -> None:
        self.state = replace(self.state, attempts=self.state.attempts.delete(attempt))

    def send(self, attempt: Attempt, destinations: Iterable[Destination], body: Body) -> None:
        still_open = rules.open_attempts(self.state)
        for each in destinations:
            me = Peer(each.decode_rank, self.state.incarnation)
            self.effects.append(Send(Envelope(me, each.peer, attempt, body, still_open)))

    def publish(self, attempt: AttemptState, destinations: Iterable[Destination]) -> None:
        for each in destinations:
            lease = attempt.leases[each.decode_rank]
            body = Publish(attempt.room, attempt.digest, lease, attempt.prompt_tokens, attempt.held_tokens)
            self.send(attempt.attempt, [each], body)
