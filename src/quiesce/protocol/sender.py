"""The sender machine: one prefill rank's half of every hand-off (PROTOCOL section 4).

`step(state, fact) -> (state', effects)`. Facts and effects are in `sender_io`; what is decided, and by which rule, is
in `sender_rules`; how halves meet, writes go out and requests end is in `sender_binding`, `sender_writes` and
`sender_ends`; messages, lost lives and clocks are in `sender_hearing`, `sender_losses` and `sender_clocks`.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from quiesce.ids import AttemptKey, Peer
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.lender_windows import stopped
from quiesce.protocol.messages import (
    Abort,
    AbortAck,
    Body,
    Committed,
    Fail,
    Failure,
    Fault,
    Fenced,
    Publish,
)
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.record import Record, RecordPhase, SenderState
from quiesce.protocol.sender_binding import arrive, publish
from quiesce.protocol.sender_clocks import expire
from quiesce.protocol.sender_ends import (
    ended,
    fail_request,
    give_up,
    mark_fenced,
    refuse,
    settle,
)
from quiesce.protocol.sender_hearing import failed_there, fenced, hear
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
    SenderTimerFired,
    SourceFenced,
    StopSenderTimers,
    WriteSettled,
)
from quiesce.protocol.sender_losses import lose
from quiesce.protocol.sender_turn import SenderTurn
from quiesce.protocol.sender_writes import computed, settled

ABORTED = Failure("aborted", "Decode ended the hand-off.", Fault.DECODE, 503)
ENDPOINT_CLOSED = Failure("endpoint_closed", "This worker closed its transport.", Fault.PREFILL, 503)


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
            ended(turn, fact)
        case Heard(envelope=envelope):
            hear(turn, envelope, _obey)
        case ChunkComputed():
            computed(turn, fact)
        case WriteSettled():
            settled(turn, fact)
        case DecodeLost() | DecodeReplaced():
            lose(turn, fact)
        case SourceFenced():
            _fence_sources(turn)
        case SenderTimerFired():
            expire(turn, fact)
        case _:  # pragma: no cover
            assert_never(fact)
    return turn.state, tuple(turn.effects)


# ---------------------------------------------------------------- messages


def _obey(turn: SenderTurn, key: AttemptKey, body: Body) -> None:
    match body:
        case Publish():
            publish(turn, key, body)
        case Abort():
            _abort(turn, key)
        case Committed():
            _committed(turn, key)
        case Fenced():
            fenced(turn, key)
        case Fail():
            failed_there(turn, key, body)
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


# ---------------------------------------------------------------- lost streams and lives


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


__all__ = ["SenderState", "start", "step"]
