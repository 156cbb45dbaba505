"""How the two halves of a hand-off meet at prefill: by room and digest, never by room alone (PROTOCOL section 2)."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.ids import AttemptKey
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.messages import Ask, Bound, Fail, Failure, Fault, Publish
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.record import NO_LEASE, Record, RecordPhase, RequestPhase, RequestState
from quiesce.protocol.sender_ends import fail_request, refuse
from quiesce.protocol.sender_io import (
    Arrived,
    SenderTimer,
    StartCompute,
    StartSenderTimer,
    StopSenderTimers,
)
from quiesce.protocol.sender_turn import SenderTurn


def arrive(turn: SenderTurn, fact: Arrived) -> None:
    """A request came through the door; a PUBLISH may wait for it already."""
    if fact.request in turn.state.requests:
        turn.ignore("arrived", Reason.DUPLICATE)
        return
    turn.put_request(RequestState(fact.request, fact.room, fact.digest, fact.decode_ranks))
    turn.emit(StartSenderTimer(fact.request, SenderTimer.REQUEST))
    for record in rules.announced(turn.state, (fact.room, fact.digest)):
        request = turn.request(fact.request)
        if request is not None and rules.may_bind(request, record):
            _bind(turn, request, record)


def publish(turn: SenderTurn, key: AttemptKey, body: Publish | Ask) -> None:
    """Decode told us of an attempt; a request may wait for it already, or be given up already."""
    known = turn.record(key)
    if known is not None:
        _publish_again(turn, known, kind_of(body))
        return
    lease = body.lease if isinstance(body, Publish) else NO_LEASE
    record = turn.put(
        Record(key, RecordPhase.ANNOUNCED, body.room, body.digest, lease=lease, held_tokens=body.held_tokens)
    )
    request = _waiting_for(turn, record)
    failure = turn.state.given_up.get(record.meeting)
    if request is not None:
        _bind(turn, request, record)
    elif failure is not None:
        refuse(turn, record, failure)
    else:
        turn.emit(StartSenderTimer(key, SenderTimer.ORPHAN))


def _publish_again(turn: SenderTurn, record: Record, kind: str) -> None:
    """PUBLISH is re-sent until BOUND or abort: repeat the answer, change nothing."""
    if rules.is_active(record):
        turn.reply(record.key, Bound())
    elif record.failure is not None and not record.abort_heard:
        turn.reply(record.key, Fail(record.failure, record.poisoned))
    else:
        turn.ignore(kind, Reason.DUPLICATE)


def _waiting_for(turn: SenderTurn, record: Record) -> RequestState | None:
    fitting = (each for each in turn.state.requests.values() if rules.may_bind(each, record))
    return min(fitting, key=lambda each: each.request, default=None)


def _bind(turn: SenderTurn, request: RequestState, record: Record) -> None:
    turn.put(replace(record, phase=RecordPhase.BOUND, request=request.request))
    bound = turn.put_request(replace(request, bound=(*request.bound, record.key)))
    turn.emit(StopSenderTimers(record.key))
    turn.reply(record.key, Bound())
    turn.emit(StartSenderTimer(record.key, SenderTimer.PROGRESS))
    if rules.is_fully_bound(bound):
        _begin(turn, bound, record.held_tokens)


def _begin(turn: SenderTurn, request: RequestState, held_tokens: int) -> None:
    """Every awaited destination is here. Decode's ranks act on one decision, so they hold the same prefix."""
    held = {turn.state.records[key].held_tokens for key in request.bound if key in turn.state.records}
    if held != {held_tokens}:
        message = "The decode ranks of one request hold prefixes of different lengths."
        fail_request(turn, request, Failure("held_tokens_differ", message, Fault.DECODE))
        return
    turn.put_request(replace(request, phase=RequestPhase.COMPUTING))
    turn.emit(StopSenderTimers(request.request), StartCompute(request.request, held_tokens))
