"""The sender machine with one rule left out of one function."""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec.structs import replace

from quiesce.ids import AttemptKey, Peer
from quiesce.protocol import sender, sender_ends, sender_hearing, sender_losses, sender_writes
from quiesce.protocol.messages import AbortAck, Done, OpenAttempts
from quiesce.protocol.record import Record, RecordPhase, RequestPhase
from quiesce.protocol.sender_io import CacheSource


def cache_failed_source(turn: Any, request: Any, failure: Any) -> None:
    if request is not None and request.phase is not RequestPhase.FAILED:
        turn.emit(CacheSource(request.request))
    honest_fail_request(turn, request, failure)


honest_fail_request = sender_ends.fail_request


def cache_when_computed(turn: Any, fact: Any) -> None:
    honest_computed(turn, fact)
    request = turn.request(fact.request)
    if fact.last and request is not None and request.phase is RequestPhase.COMPUTED:
        turn.emit(CacheSource(fact.request))


honest_computed = sender_writes.computed


def ack_unmarked(turn: Any, key: AttemptKey) -> None:
    turn.reply(key, AbortAck())


def silent_if_unknown(turn: Any, key: AttemptKey) -> None:
    if turn.record(key) is not None:
        honest_abort(turn, key)


honest_abort = sender._abort


def ack_without_tombstone(turn: Any, key: AttemptKey) -> None:
    if turn.record(key) is None:
        turn.reply(key, AbortAck())
    else:
        honest_abort(turn, key)


def ack_and_forget(turn: Any, record: Record) -> None:
    turn.drop(record.key)
    turn.reply(record.key, AbortAck())


def ack_outstanding(record: Record) -> bool:
    return record.abort_heard and not record.poisoned


def ack_poisoned(record: Record) -> bool:
    return record.abort_heard and not record.outstanding


def not_monotone(old: OpenAttempts, new: OpenAttempts) -> OpenAttempts:
    return new


def accept_closed(turn: Any, envelope: Any, obey: Any) -> None:
    """The bound drops records, but what it closed is obeyed."""
    key = AttemptKey(envelope.sender, envelope.attempt)
    sender_hearing.merge_open(turn, key.decode.incarnation, envelope.open_attempts)
    obey(turn, key, envelope.body)


def drop_at_committed(turn: Any, key: AttemptKey) -> None:
    if turn.record(key) is not None:
        turn.drop(key)


def forget_with_stream(turn: Any, decode: Peer) -> None:
    honest_lose_stream(turn, decode)
    turn.state = replace(turn.state, lives=Map())
    for key in sorted(turn.state.records):
        if turn.state.records[key].phase in (RecordPhase.ACKED, RecordPhase.DONE, RecordPhase.TOMBSTONE):
            turn.drop(key)


honest_lose_stream = sender_losses._lose_stream


def done_at_once(turn: Any, fact: Any) -> None:
    """A late reject: the half that computes nothing says DONE all the same."""
    request = turn.request(fact.request)
    for key in request.bound if request is not None else ():
        record = turn.state.records[key]
        turn.put(replace(record, phase=RecordPhase.DRAINED))
        turn.reply(key, Done(record.digest, (0,), "", 5))


def source_never_read(record: Record) -> bool:
    return False


def source_by_count(record: Record) -> bool:
    return bool(record.outstanding) and not record.fenced


def is_sending(record: Record) -> bool:
    return record.phase is RecordPhase.SENDING


def bind_by_room(request: Any, record: Record) -> bool:
    return request.phase.value == "waiting" and request.room == record.room and not request.bound


def no_memory(turn: Any, meeting: Any, failure: Any) -> None:
    return


def in_flight_is_quiesced(outcome: Any) -> bool:
    return False


def quiesced_goes_on(turn: Any, request: Any, failure: Any) -> None:
    return


def no_repeat(record: Record) -> None:
    return None
