"""The lender machine: one prefill rank's half of every hand-off, where decode reads (PROTOCOL section 6).

`step(state, fact) -> (state', effects)`. Facts and effects are in `lender_io`. Its state and decisions are the
sender's, of which no record ever has a write; what it hears, loses and times as the sender does is in `sender_hearing`,
`sender_losses` and `sender_clocks`, its windows are in `lender_windows`, and this module says what ends them.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from quiesce.errors import invariant
from quiesce.ids import AttemptKey, Peer
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.lender_io import Computed, LenderEffect, LenderInput, ReaderDead, Revoked
from quiesce.protocol.lender_windows import lend, stopped, take_back
from quiesce.protocol.messages import AbortAck, Ask, Body, Committed, Fail, Failure, Fault, Fenced
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.record import Record, RecordPhase, RequestPhase, RequestState, SenderState
from quiesce.protocol.sender_binding import arrive, publish
from quiesce.protocol.sender_clocks import expire
from quiesce.protocol.sender_ends import ended, fail_request, give_up, mark_fenced, settle, settle_source
from quiesce.protocol.sender_hearing import failed_there, fenced, hear
from quiesce.protocol.sender_io import (
    Arrived,
    CacheSource,
    DecodeLost,
    DecodeReplaced,
    Ended,
    Heard,
    PrefillDone,
    Refused,
    ReleaseSource,
    SenderTimerFired,
    StopSenderTimers,
)
from quiesce.protocol.sender_losses import bury, lose
from quiesce.protocol.sender_turn import SenderTurn

ABORTED = Failure("aborted", "Decode ended the hand-off.", Fault.DECODE, 503)
WINDOW_CLOSED = Failure("window_closed", "Prefill closed the window to the prompt's pages.", Fault.PREFILL, 503)

LenderState = SenderState


def start(me: Peer) -> LenderState:
    """A rank's first state."""
    return LenderState(me, window=0, batch_pages=0)


def step(state: LenderState, fact: LenderInput) -> tuple[LenderState, tuple[LenderEffect, ...]]:
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
        case Computed():
            _computed(turn, fact)
        case Revoked(key=key):
            _revoked(turn, key)
        case ReaderDead(peer=peer):
            _reader_dead(turn, peer)
        case DecodeLost() | DecodeReplaced():
            lose(turn, fact)
        case SenderTimerFired():
            expire(turn, fact)
        case _:  # pragma: no cover
            assert_never(fact)
    return turn.state, tuple(turn.effects)


def _computed(turn: SenderTurn, fact: Computed) -> None:
    """The prompt is there: lend it to every decode rank. That ends what the request's owner waits for."""
    request = turn.request(fact.request)
    if request is None or request.phase is not RequestPhase.COMPUTING:
        turn.ignore("computed", Reason.LATE)
        return
    invariant(len(fact.leases) == len(request.bound), "one_window_per_decode_rank", f"{len(fact.leases)} leases")
    turn.put_request(replace(request, phase=RequestPhase.LENT))
    for key, lease in zip(request.bound, fact.leases, strict=True):
        lend(turn, request, key, lease, fact)
    turn.emit(PrefillDone(request.request))


# ---------------------------------------------------------------- messages


def _obey(turn: SenderTurn, key: AttemptKey, body: Body) -> None:
    match body:
        case Ask():
            publish(turn, key, body)
        case AbortAck():
            _acked(turn, key)
        case Committed():
            _committed(turn, key)
        case Fenced():
            fenced(turn, key)
        case Fail():
            failed_there(turn, key, body)
        case _:
            turn.ignore(kind_of(body), Reason.UNEXPECTED)


def _acked(turn: SenderTurn, key: AttemptKey) -> None:
    """Nothing of this attempt reads, nor ever will. Never heard of: a tombstone all the same (rule 9)."""
    record = turn.record(key) or Record(key, RecordPhase.ANNOUNCED)
    if record.phase in (RecordPhase.ACKED, RecordPhase.DONE):
        turn.ignore("abort_ack", Reason.DUPLICATE)
        return
    turn.put(stopped(take_back(turn, record), RecordPhase.ACKED))
    turn.emit(StopSenderTimers(key))
    fail_request(turn, turn.request(record.request), ABORTED)


def _committed(turn: SenderTurn, key: AttemptKey) -> None:
    """Every read has landed. The source may be cached if that is how the hand-off ended here too (rule 12)."""
    record = turn.record(key)
    if record is None or not rules.is_lent(record):
        known_done = record is not None and record.phase is RecordPhase.DONE
        turn.ignore("committed", Reason.DUPLICATE if known_done else Reason.EARLY)
        return
    phase = RecordPhase.DONE if record.phase is RecordPhase.OFFERED else RecordPhase.ACKED
    turn.put(stopped(take_back(turn, record), phase))
    turn.emit(StopSenderTimers(key))
    _returned(turn, turn.state.requests[record.request])


def _returned(turn: SenderTurn, request: RequestState) -> None:
    records = [turn.record(key) for key in request.bound]
    if all(record is not None and record.phase is RecordPhase.DONE for record in records):
        turn.emit(CacheSource(request.request), ReleaseSource(request.request, Proof.DRAINED))
        turn.drop_request(request.request)
    else:
        settle_source(turn, request.request)


# ---------------------------------------------------------------- facts about windows and readers


def _revoked(turn: SenderTurn, key: AttemptKey) -> None:
    """No read of the window is served any more: that frees the source, and is no word about decode's pages."""
    record = turn.record(key)
    if record is None or not rules.is_lent(record):
        turn.ignore("revoked", Reason.LATE)
        return
    _free(turn, record)
    turn.emit(StopSenderTimers(key))
    if record.phase is RecordPhase.OFFERED:
        turn.reply(key, Fail(WINDOW_CLOSED))
    fail_request(turn, turn.request(record.request), WINDOW_CLOSED)


def _free(turn: SenderTurn, record: Record) -> None:
    """By a proof that is no message."""
    mark_fenced(turn, record)
    settle(turn, turn.put(stopped(take_back(turn, record), RecordPhase.ABORTED, record.failure or WINDOW_CLOSED)))


def _reader_dead(turn: SenderTurn, peer: Peer) -> None:
    """What it read, or still reads, nobody attends: its windows are free, whether they can be revoked or not."""
    bury(turn, peer.incarnation)
    for key in sorted(turn.state.records):
        record = turn.state.records[key]
        if key.decode == peer and rules.is_lent(record):
            _free(turn, record)


__all__ = ["LenderState", "start", "step"]
