"""Windows at prefill, in pull: opened before OFFER leaves, revoked when the hand-off fails, taken back by a proof."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.ids import AttemptKey
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.lender_io import Computed, Lend, Revoke, TakeBack
from quiesce.protocol.messages import Failure, Lease, Offer
from quiesce.protocol.record import NO_LEASE, Record, RecordPhase, RequestState
from quiesce.protocol.sender_io import SenderTimer, StartSenderTimer, StopSenderTimers
from quiesce.protocol.sender_turn import SenderTurn


def lend(turn: SenderTurn, request: RequestState, key: AttemptKey, lease: Lease, fact: Computed) -> None:
    """Arm before notify: the window is open before decode hears of it."""
    offer = Offer(request.digest, lease, fact.payload_digest, fact.first_token, fact.first_logprobs, fact.cached_tokens)
    turn.put(replace(turn.state.records[key], phase=RecordPhase.OFFERED, lent=lease, done=offer))
    turn.emit(Lend(key, request.request, lease))
    turn.reply(key, offer)
    turn.emit(StopSenderTimers(key), StartSenderTimer(key, SenderTimer.RESEND), StartSenderTimer(key, SenderTimer.LENT))


def stopped(record: Record, phase: RecordPhase, failure: Failure | None = None) -> Record:
    """The record of an attempt that launches and offers nothing more; what was launched or lent still counts."""
    return replace(record, phase=phase, queued=(), lease=NO_LEASE, done=None, failure=failure or record.failure)


def withdraw(turn: SenderTurn, record: Record, failure: Failure, *, is_heard: bool = True) -> Record:
    """An offered attempt failed. Decode may go on reading, so the source is held, and ABORT said until it answers.

    `is_heard`: decode may hear it. A revoked window is a proof of its own, where that is to be had (section 6).
    """
    over = turn.put(replace(stopped(record, RecordPhase.ABORTED, failure), resend_round=0))
    turn.emit(StopSenderTimers(record.key), Revoke(record.key, record.lent))
    if is_heard:
        turn.emit(StartSenderTimer(record.key, SenderTimer.RESEND))
    return over


def take_back(turn: SenderTurn, record: Record) -> Record:
    """There is a proof that decode reads no more. What was not lent stays as it is."""
    if not rules.is_lent(record):
        return record
    turn.emit(TakeBack(record.key, record.lent))
    return turn.put(replace(record, lent=NO_LEASE))
