"""What prefill hears from decode, in push and in pull alike: what counts, is closed, failed there."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from quiesce.ids import AttemptKey, Incarnation
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.lender_windows import stopped, take_back, withdraw
from quiesce.protocol.messages import Ask, Body, Envelope, Fail, Failure, Fault, OpenAttempts, Publish
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.record import FIRST_OPEN, Record, RecordPhase
from quiesce.protocol.sender_ends import fail_request, mark_fenced
from quiesce.protocol.sender_io import StopSenderTimers
from quiesce.protocol.sender_turn import SenderTurn

CLOSED = Failure("attempt_closed", "Decode released the attempt.", Fault.DECODE, 503)
FENCED = Failure("fenced", "Decode keeps this worker's writes out.", Fault.DECODE, 503)


def hear(turn: SenderTurn, envelope: Envelope, obey: Callable[[SenderTurn, AttemptKey, Body], None]) -> None:
    """Obey what is for this life, from a life that is not over, about an attempt that is not closed."""
    key = AttemptKey(envelope.sender, envelope.attempt)
    if not rules.is_addressed(turn.state, envelope):
        turn.ignore(kind_of(envelope.body), Reason.OTHER_LIFE)
        return
    if rules.is_dead(turn.state, key.decode.incarnation):
        turn.ignore(kind_of(envelope.body), Reason.DEAD_LIFE)
        return
    was_known = turn.record(key) is not None
    merge_open(turn, key.decode.incarnation, envelope.open_attempts)
    if not rules.is_closed(turn.state, key):
        obey(turn, key, envelope.body)
        return
    if isinstance(envelope.body, Publish | Ask):
        turn.reply(key, Fail(CLOSED))
    if not was_known:
        turn.ignore(kind_of(envelope.body), Reason.CLOSED)


def merge_open(turn: SenderTurn, life: Incarnation, told: OpenAttempts | None) -> None:
    """Rule 9: what decode released needs no tombstone and no source pages any more."""
    old = turn.state.lives.get(life, FIRST_OPEN)
    new = old if told is None else rules.merged(old, told)
    if new != old:
        turn.state = replace(turn.state, lives=turn.state.lives.set(life, new))
        for key in rules.closed_records(turn.state, life):
            _close(turn, turn.state.records[key])


def _close(turn: SenderTurn, record: Record) -> None:
    mark_fenced(turn, record)
    take_back(turn, record)
    turn.drop(record.key)
    turn.emit(StopSenderTimers(record.key))
    fail_request(turn, turn.request(record.request), CLOSED)


def fenced(turn: SenderTurn, key: AttemptKey) -> None:
    """Our writes of this attempt are kept out for ever, or decode's reads: that frees what they read, and is no ack."""
    record = turn.record(key) or Record(key, RecordPhase.TOMBSTONE)
    if record.fenced:
        turn.ignore("fenced", Reason.DUPLICATE)
        return
    mark_fenced(turn, record)
    record = take_back(turn, record)
    turn.put(replace(stopped(record, RecordPhase.TOMBSTONE), fenced=True))
    turn.emit(StopSenderTimers(key))
    fail_request(turn, turn.request(record.request), FENCED)


def failed_there(turn: SenderTurn, key: AttemptKey, body: Fail) -> None:
    """Decode gave up. Stop; whether anything may still land is said when its ABORT comes (in pull: its ABORT_ACK)."""
    record = turn.record(key)
    if record is None or record.phase is RecordPhase.ANNOUNCED:
        turn.put(stopped(record or Record(key, RecordPhase.TOMBSTONE), RecordPhase.TOMBSTONE, body.failure))
        turn.emit(StopSenderTimers(key))
    elif rules.is_active(record):
        turn.put(stopped(record, RecordPhase.ABORTED, body.failure))
        turn.emit(StopSenderTimers(key))
        fail_request(turn, turn.request(record.request), body.failure)
    elif record.phase is RecordPhase.OFFERED:
        withdraw(turn, record, body.failure)
        fail_request(turn, turn.request(record.request), body.failure)
    else:
        turn.ignore("fail", Reason.LATE)
