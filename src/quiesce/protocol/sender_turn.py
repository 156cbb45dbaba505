"""One step of a machine of prefill under way: the state so far and the effects so far, in order."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from quiesce.ids import AttemptKey, RequestId
from quiesce.protocol.messages import Body, Envelope
from quiesce.protocol.reasons import Reason
from quiesce.protocol.record import Record, RequestState, SenderState
from quiesce.protocol.sender_io import Reply, SenderIgnored


class SenderTurn:
    """What the transitions write to; `step` makes one and takes it apart again."""

    def __init__(self, state: SenderState) -> None:
        self.state = state
        self.effects: list[Any] = []

    def emit(self, *effects: Any) -> None:
        self.effects += effects

    def ignore(self, kind: str, reason: Reason) -> None:
        self.effects.append(SenderIgnored(kind, reason.value))

    def reply(self, key: AttemptKey, body: Body) -> None:
        self.effects.append(Reply(Envelope(self.state.me, key.decode, key.attempt, body)))

    def record(self, key: AttemptKey) -> Record | None:
        return self.state.records.get(key)

    def request(self, request: RequestId) -> RequestState | None:
        return self.state.requests.get(request)

    def put(self, record: Record) -> Record:
        self.state = replace(self.state, records=self.state.records.set(record.key, record))
        return record

    def drop(self, key: AttemptKey) -> None:
        self.state = replace(self.state, records=self.state.records.delete(key))

    def put_request(self, request: RequestState) -> RequestState:
        self.state = replace(self.state, requests=self.state.requests.set(request.request, request))
        return request

    def drop_request(self, request: RequestId) -> None:
        self.state = replace(self.state, requests=self.state.requests.delete(request))
