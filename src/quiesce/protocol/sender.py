"""The sender machine: one prefill rank's half of every hand-off (PROTOCOL section 4).

`step(state, fact) -> (state', effects)`. Facts and effects are in `sender_io`; what is decided, and by which rule, is
in `sender_rules`; how halves meet, writes go out and requests end is in `sender_binding`, `sender_writes` and
`sender_ends`; this module hears messages, lost lives and clocks.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from quiesce.ids import AttemptKey, Incarnation, Peer, RequestId
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.messages import (
    Abort,
    AbortAck,
    Body,
    Committed,
    Envelope,
    Fail,
    Failure,
    Fault,
    Fenced,
    OpenAttempts,
    Progress,
    Publish,
)
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.record import FIRST_OPEN, Meeting, Record, RecordPhase, RequestPhase, SenderState
from quiesce.protocol.sender_binding import arrive, publish
from quiesce.protocol.sender_ends import (
    fail_request,
    give_up,
    mark_fenced,
    refuse,
    settle,
    stopped,
)
from quiesce.protocol.sender_io import (
    Arrived,
    ChunkComputed,
    DecodeLost,
    DecodeReplaced,
    Ended,
    Heard,
    Refused,
    SenderEffect,
    SenderInput,
    SenderTimer,
    SenderTimerFired,
    SourceFenced,
    StartSenderTimer,
    StopSenderTimers,
    WriteSettled,
)
from quiesce.protocol.sender_turn import SenderTurn
from quiesce.protocol.sender_writes import computed, settled

ABORTED = Failure("aborted", "Decode ended the hand-off.", Fault.DECODE, 503)
CLOSED = Failure("attempt_closed", "Decode released the attempt.", Fault.DECODE, 503)
FENCED = Failure("fenced", "Decode keeps this worker's writes out.", Fault.DECODE, 503)
STREAM_LOST = Failure("stream_lost", "The stream to the decode worker ended.", Fault.DECODE, 503)
DECODE_LOST = Failure("decode_lost", "The decode worker is gone.", Fault.DECODE, 503)
ENDPOINT_CLOSED = Failure("endpoint_closed", "This worker closed its transport.", Fault.PREFILL, 503)
NO_REQUEST = Failure("handoff_timeout", "The request for this destination did not come in time.", Fault.ROUTER, 504)
NO_PUBLISH = Failure("no_lease", "Decode had no room for this request in time. Nothing was begun.", Fault.DECODE, 503)


def start(me: Peer, window: int = 2, batch_pages: int = 0) -> SenderState:
    """A rank's first state. At most `window` calls of at most `batch_pages` pages (0 = a chunk) are outstanding."""
    return SenderState(me, window, batch_pages)


def step(state: SenderState, fact: SenderInput) -> tuple[SenderState, tuple[SenderEffect, ...]]:
    """The next state and what to do, in that order. Raises InvariantBroken if the executor broke its contract."""
    turn = SenderTurn(state)
    match fact:
        case Arrived():
            arrive(turn, fact)
        case Refused(room=room, digest=digest, failure=failure):
            give_up(turn, (room, digest), failure)
        case Ended():
            _ended(turn, fact)
        case Heard(envelope=envelope):
            _hear(turn, envelope)
        case ChunkComputed():
            computed(turn, fact)
        case WriteSettled():
            settled(turn, fact)
        case DecodeLost() | DecodeReplaced() | SourceFenced():
            _lose(turn, fact)
        case SenderTimerFired():
            _expire(turn, fact)
        case _:  # pragma: no cover
            assert_never(fact)
    return turn.state, tuple(turn.effects)


def _ended(turn: SenderTurn, fact: Ended) -> None:
    request = turn.request(fact.request)
    if request is None or request.phase is RequestPhase.FAILED:
        turn.ignore("ended", Reason.LATE)
    else:
        fail_request(turn, request, fact.failure)


# ---------------------------------------------------------------- messages


def _hear(turn: SenderTurn, envelope: Envelope) -> None:
    key = AttemptKey(envelope.sender, envelope.attempt)
    if not rules.is_addressed(turn.state, envelope):
        turn.ignore(kind_of(envelope.body), Reason.OTHER_LIFE)
        return
    if rules.is_dead(turn.state, key.decode.incarnation):
        turn.ignore(kind_of(envelope.body), Reason.DEAD_LIFE)
        return
    was_known = turn.record(key) is not None
    _merge_open(turn, key.decode.incarnation, envelope.open_attempts)
    if not rules.is_closed(turn.state, key):
        _obey(turn, key, envelope.body)
        return
    if isinstance(envelope.body, Publish):
        turn.reply(key, Fail(CLOSED))
    if not was_known:
        turn.ignore(kind_of(envelope.body), Reason.CLOSED)


def _merge_open(turn: SenderTurn, life: Incarnation, told: OpenAttempts | None) -> None:
    """Rule 9: what decode released needs no tombstone and no source pages any more."""
    old = turn.state.lives.get(life, FIRST_OPEN)
    new = old if told is None else rules.merged(old, told)
    if new != old:
        turn.state = replace(turn.state, lives=turn.state.lives.set(life, new))
        for key in rules.closed_records(turn.state, life):
            _close(turn, turn.state.records[key])


def _close(turn: SenderTurn, record: Record) -> None:
    mark_fenced(turn, record)
    turn.drop(record.key)
    turn.emit(StopSenderTimers(record.key))
    fail_request(turn, turn.request(record.request), CLOSED)


def _obey(turn: SenderTurn, key: AttemptKey, body: Body) -> None:
    match body:
        case Publish():
            publish(turn, key, body)
        case Abort():
            _abort(turn, key)
        case Committed():
            _committed(turn, key)
        case Fenced():
            _fenced(turn, key)
        case Fail():
            _failed_there(turn, key, body)
        case _:
            turn.ignore(kind_of(body), Reason.UNEXPECTED)


def _abort(turn: SenderTurn, key: AttemptKey) -> None:
    """Mark first, ack when nothing is outstanding. Never heard of: tombstone first, then ack (rules 3, 4 and 9)."""
    record = turn.record(key) or Record(key, RecordPhase.ABORTED)
    if record.poisoned:
        turn.put(replace(record, abort_heard=True))
        turn.ignore("abort", Reason.POISONED)
    elif record.phase is RecordPhase.ACKED:
        turn.reply(key, AbortAck())
    else:
        aborted = turn.put(replace(stopped(record, RecordPhase.ABORTED), abort_heard=True, done=None))
        turn.emit(StopSenderTimers(key))
        settle(turn, aborted)
        fail_request(turn, turn.request(record.request), ABORTED)


def _committed(turn: SenderTurn, key: AttemptKey) -> None:
    record = turn.record(key)
    if record is None or record.phase is not RecordPhase.DRAINED:
        known_done = record is not None and record.phase is RecordPhase.DONE
        turn.ignore("committed", Reason.DUPLICATE if known_done else Reason.EARLY)
    else:
        turn.put(replace(record, phase=RecordPhase.DONE, done=None))
        turn.emit(StopSenderTimers(key))


def _fenced(turn: SenderTurn, key: AttemptKey) -> None:
    """Our writes of this attempt are kept out for ever: that frees what they read, and is no reason to ack."""
    record = turn.record(key) or Record(key, RecordPhase.TOMBSTONE)
    if record.fenced:
        turn.ignore("fenced", Reason.DUPLICATE)
        return
    mark_fenced(turn, record)
    turn.put(replace(stopped(record, RecordPhase.TOMBSTONE), fenced=True, done=None))
    turn.emit(StopSenderTimers(key))
    fail_request(turn, turn.request(record.request), FENCED)


def _failed_there(turn: SenderTurn, key: AttemptKey, body: Fail) -> None:
    """Decode gave up. Stop; whether anything may still land is said when its ABORT comes."""
    record = turn.record(key)
    if record is None or record.phase is RecordPhase.ANNOUNCED:
        turn.put(stopped(record or Record(key, RecordPhase.TOMBSTONE), RecordPhase.TOMBSTONE, body.failure))
        turn.emit(StopSenderTimers(key))
    elif rules.is_active(record):
        turn.put(stopped(record, RecordPhase.ABORTED, body.failure))
        turn.emit(StopSenderTimers(key))
        fail_request(turn, turn.request(record.request), body.failure)
    else:
        turn.ignore("fail", Reason.LATE)


# ---------------------------------------------------------------- lost streams and lives


def _lose(turn: SenderTurn, fact: DecodeLost | DecodeReplaced | SourceFenced) -> None:
    if isinstance(fact, DecodeLost):
        _lose_stream(turn, fact.decode)
    elif isinstance(fact, DecodeReplaced):
        _bury(turn, fact.old.incarnation)
    else:
        _fence_sources(turn)


def _lose_stream(turn: SenderTurn, decode: Peer) -> None:
    """Stop; nothing is forgotten, because older messages of this life may still be read (rule 9)."""
    for key in sorted(turn.state.records):
        record = turn.state.records[key]
        if key.decode != decode:
            continue
        if record.phase is RecordPhase.ANNOUNCED:
            refuse(turn, record, STREAM_LOST)
        elif rules.is_active(record):
            fail_request(turn, turn.request(record.request), STREAM_LOST)


def _bury(turn: SenderTurn, life: Incarnation) -> None:
    """A decode life is over: refuse it from now on; keep only what a transport may still report on."""
    turn.state = replace(turn.state, dead=turn.state.dead | {life})
    if life in turn.state.lives:
        turn.state = replace(turn.state, lives=turn.state.lives.delete(life))
    mine = [record for key, record in sorted(turn.state.records.items()) if key.decode.incarnation == life]
    for record in mine:
        phase = RecordPhase.POISONED if record.poisoned else RecordPhase.ABORTED
        turn.put(stopped(record, phase, DECODE_LOST))
        turn.emit(StopSenderTimers(record.key))
    for record in mine:
        fail_request(turn, turn.request(record.request), DECODE_LOST)
        if rules.may_forget(turn.state, record):
            turn.drop(record.key)


def _fence_sources(turn: SenderTurn) -> None:
    """Our endpoint is destroyed and joined: frees every source, permits no ack (section 3)."""
    for key in sorted(turn.state.records):
        record = turn.state.records[key]
        if record.phase is RecordPhase.ANNOUNCED:
            refuse(turn, record, ENDPOINT_CLOSED)
        elif rules.reads_source(record):
            mark_fenced(turn, record)
            turn.put(replace(record, source_fenced=True))
    for request in sorted(turn.state.requests):
        fail_request(turn, turn.request(request), ENDPOINT_CLOSED)


# ---------------------------------------------------------------- clocks


def _expire(turn: SenderTurn, fact: SenderTimerFired) -> None:
    match fact.timer, fact.subject:
        case SenderTimer.ORPHAN, AttemptKey() as key:
            _orphaned(turn, key)
        case SenderTimer.RESEND, AttemptKey() as key:
            _resend(turn, key)
        case SenderTimer.PROGRESS, AttemptKey() as key:
            _tell_progress(turn, key)
        case SenderTimer.REQUEST, str(request):
            _unpublished(turn, RequestId(request))
        case SenderTimer.FORGET, (room, digest):
            _forget(turn, (room, digest))
        case _:
            turn.ignore(f"timer_{fact.timer}", Reason.UNKNOWN)


def _orphaned(turn: SenderTurn, key: AttemptKey) -> None:
    """Rule 17: a PUBLISH without its request."""
    record = turn.record(key)
    if record is None or record.phase is not RecordPhase.ANNOUNCED:
        turn.ignore("timer_orphan", Reason.LATE)
    else:
        refuse(turn, record, NO_REQUEST)


def _tell_progress(turn: SenderTurn, key: AttemptKey) -> None:
    """Decode gives up on whoever is silent (rule 17)."""
    record = turn.record(key)
    if record is None or not rules.is_at_work(record):
        turn.ignore("timer_progress", Reason.LATE)
    else:
        turn.reply(key, Progress())
        turn.emit(StartSenderTimer(key, SenderTimer.PROGRESS))


def _unpublished(turn: SenderTurn, request: RequestId) -> None:
    """Rule 17: a request without its PUBLISH."""
    waiting = turn.request(request)
    if waiting is None or waiting.phase is not RequestPhase.WAITING:
        turn.ignore("timer_request", Reason.LATE)
    else:
        fail_request(turn, waiting, NO_PUBLISH)


def _forget(turn: SenderTurn, meeting: Meeting) -> None:
    if meeting in turn.state.given_up:
        turn.state = replace(turn.state, given_up=turn.state.given_up.delete(meeting))
    else:
        turn.ignore("timer_forget", Reason.LATE)


def _resend(turn: SenderTurn, key: AttemptKey) -> None:
    """DONE until COMMITTED or ABORT; FAIL{poisoned} until FENCED. Nothing of either: the clock is not started again."""
    record = turn.record(key)
    body = None if record is None else rules.to_repeat(record)
    if record is None or body is None:
        turn.ignore("timer_resend", Reason.LATE)
        return
    later = min(record.resend_round + 1, rules.MAX_RESEND_ROUND)
    turn.put(replace(record, resend_round=later))
    turn.reply(key, body)
    turn.emit(StartSenderTimer(key, SenderTimer.RESEND, later))


__all__ = ["SenderState", "start", "step"]
