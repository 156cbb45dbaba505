"""Failing and holding at decode: every way to fail holds, and only proofs release (PROTOCOL sections 3 and 4)."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.ids import Attempt, Peer
from quiesce.protocol import receiver_rules as rules
from quiesce.protocol.attempt import AttemptState, Destination, Phase
from quiesce.protocol.decode_steps import give_back, prefill_failure, release_without_proof, settled
from quiesce.protocol.decode_turn import ReceiverTurn
from quiesce.protocol.messages import Abort, AbortAck, Failure, Fenced
from quiesce.protocol.reasons import Reason
from quiesce.protocol.receiver_io import (
    FenceProved,
    Hold,
    Quarantine,
    RequestFailed,
    StartTimer,
    StopTimers,
    Timer,
    TryFence,
)


def fail(turn: ReceiverTurn, attempt: AttemptState, failure: Failure) -> None:
    """Hold first, then ask for acks (rule 1); what was proved already is released at once, also in this order."""
    number = attempt.attempt
    held = replace(attempt, phase=Phase.HOLDING, resend_round=0)
    turn.put(held)
    turn.emit(StopTimers(number), Hold(number, rules.awaiting(held)), StartTimer(number, Timer.HOLD))
    turn.send(number, rules.to_abort(held), Abort())
    turn.emit(StartTimer(number, Timer.RESEND), RequestFailed(number, failure))
    settle(turn, held)


def acked(turn: ReceiverTurn, attempt: AttemptState, there: Destination, body: AbortAck) -> None:
    if not rules.may_count_ack(attempt, body):
        turn.ignore("abort_ack", _why_not_counted(attempt, body))
    elif rules.counts_as_proof(attempt, there):
        turn.ignore("abort_ack", Reason.DUPLICATE)
    else:
        settle(turn, replace(attempt, acked=attempt.acked | {there}))


def _why_not_counted(attempt: AttemptState, body: AbortAck) -> Reason:
    if body.outstanding:
        return Reason.OUTSTANDING
    return Reason.LATE if attempt.phase is Phase.COMMITTED else Reason.EARLY


def fence(turn: ReceiverTurn, fact: FenceProved) -> None:
    numbers = sorted(turn.state.attempts) if fact.attempt is None else [fact.attempt]
    touched = [_fence_attempt(turn, number, fact.peer) for number in numbers]
    if fact.attempt is not None and not any(touched):
        turn.ignore("fence_proved", Reason.LATE)


def _fence_attempt(turn: ReceiverTurn, number: Attempt, peer: Peer) -> bool:
    """Record the fence where a proof was missing and tell the rank. True if anything was."""
    attempt = turn.state.attempts.get(number)
    news = [] if attempt is None else [each for each in rules.unproved(attempt) if each.peer == peer]
    if attempt is None or not news:
        return False
    fails = rules.is_failed_by_loss(attempt, peer)
    fenced = replace(attempt, fenced=attempt.fenced.union(news))
    turn.put(fenced)
    turn.send(number, news, Fenced())
    if fails:
        fail(turn, fenced, prefill_failure("prefill_lost", f"Prefill {peer} is gone."))
    else:
        settle(turn, fenced)
    return True


def settle(turn: ReceiverTurn, attempt: AttemptState) -> None:
    """Release what is proved; forget the attempt when no proof is awaited any more."""
    attempt = give_back(turn, attempt, rules.proof_for)
    settled(turn, attempt, rules.may_forget(attempt))


def hold_expired(turn: ReceiverTurn, attempt: AttemptState) -> None:
    """Re-send, then fence if that costs nothing to others, else quarantine."""
    turn.send(attempt.attempt, rules.unproved(attempt), Abort())
    if turn.state.unsafe_release_on_timeout:
        release_without_proof(turn, attempt)
    else:
        turn.put(replace(attempt, phase=Phase.QUARANTINED))
        missing = rules.awaiting(attempt)
        turn.emit(TryFence(attempt.attempt, missing), Quarantine(attempt.attempt, missing))
