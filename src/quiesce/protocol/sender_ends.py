"""How requests and attempts end at prefill: stop, tell decode, hold the source pages until nobody reads them."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.ids import RequestId
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.lender_windows import stopped, withdraw
from quiesce.protocol.messages import AbortAck, Fail, Failure
from quiesce.protocol.reasons import Reason
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.record import Meeting, Record, RecordPhase, RequestPhase, RequestState
from quiesce.protocol.sender_io import (
    CacheSource,
    Ended,
    PrefillDone,
    PrefillFailed,
    ReleaseSource,
    SenderTimer,
    StartSenderTimer,
    StopCompute,
    StopSenderTimers,
)
from quiesce.protocol.sender_turn import SenderTurn


def fail_request(turn: SenderTurn, request: RequestState | None, failure: Failure) -> None:
    """Rules 2 and 14: all attempts of the request stop together; its owner hears of it once."""
    if request is None:
        return
    if request.phase is not RequestPhase.FAILED:
        turn.emit(StopSenderTimers(request.request))
        if request.phase is RequestPhase.COMPUTING:
            turn.emit(StopCompute(request.request))
        turn.put_request(replace(request, phase=RequestPhase.FAILED))
        _stop_attempts(turn, request, failure)
        if request.phase is not RequestPhase.LENT:
            turn.emit(PrefillFailed(request.request, failure))
        if not rules.is_fully_bound(request):
            give_up(turn, request.meeting, failure)
    settle_source(turn, request.request)


def ended(turn: SenderTurn, fact: Ended) -> None:
    request = turn.request(fact.request)
    if request is None or request.phase is RequestPhase.FAILED:
        turn.ignore("ended", Reason.LATE)
    else:
        fail_request(turn, request, fact.failure)


def _stop_attempts(turn: SenderTurn, request: RequestState, failure: Failure) -> None:
    for key in request.bound:
        record = turn.record(key)
        if record is not None and rules.is_active(record):
            turn.put(stopped(record, RecordPhase.ABORTED, failure))
            turn.emit(StopSenderTimers(key))
            turn.reply(key, Fail(failure))
        elif record is not None and record.phase is RecordPhase.OFFERED:
            turn.reply(key, Fail(failure))
            withdraw(turn, record, failure)


def give_up(turn: SenderTurn, meeting: Meeting, failure: Failure) -> None:
    """Rule 8: a PUBLISH that waits here or comes later is answered FAIL at once."""
    turn.state = replace(turn.state, given_up=turn.state.given_up.set(meeting, failure))
    turn.emit(StartSenderTimer(meeting, SenderTimer.FORGET))
    for record in rules.announced(turn.state, meeting):
        refuse(turn, record, failure)


def refuse(turn: SenderTurn, record: Record, failure: Failure) -> None:
    """An announced attempt will not be served: tombstone, and say so."""
    turn.put(stopped(record, RecordPhase.TOMBSTONE, failure))
    turn.emit(StopSenderTimers(record.key))
    turn.reply(record.key, Fail(failure))


def settle(turn: SenderTurn, record: Record) -> None:
    """After anything about an ended attempt changed: ack if it may be, forget if it may be, free the source."""
    if rules.may_forget(turn.state, record):
        turn.drop(record.key)
    elif record.phase is RecordPhase.ABORTED and rules.may_ack(record):
        acknowledge(turn, record)
    settle_source(turn, record.request)


def acknowledge(turn: SenderTurn, record: Record) -> None:
    turn.put(replace(record, phase=RecordPhase.ACKED))
    turn.reply(record.key, AbortAck())


def complete_request(turn: SenderTurn, request: RequestState) -> None:
    """Every decode rank was told DONE: the half is complete and its source pages are free, or cached.

    Rule 12: nowhere else does anything enter the prefix tree.
    """
    turn.emit(CacheSource(request.request), PrefillDone(request.request), ReleaseSource(request.request, Proof.DRAINED))
    turn.drop_request(request.request)


def settle_source(turn: SenderTurn, number: RequestId) -> None:
    """Rule 13: free the source pages of a failed request once no write can read them."""
    request = turn.request(number)
    if request is None or request.phase is not RequestPhase.FAILED:
        return
    records = (turn.record(key) for key in request.bound)
    if not any(record is not None and rules.reads_source(record) for record in records):
        turn.emit(ReleaseSource(number, rules.source_proof(request)))
        turn.drop_request(number)


def mark_fenced(turn: SenderTurn, record: Record) -> None:
    """Note on its request that a fence, not settling, is why this attempt's writes read the source no more."""
    request = turn.request(record.request)
    if request is not None and rules.reads_source(record):
        turn.put_request(replace(request, freed_by_fence=True))
