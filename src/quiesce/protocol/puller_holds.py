"""Failing and holding at decode in pull: every way to fail holds, and only decode's own proofs release (section 6)."""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from quiesce.protocol import puller_rules as rules
from quiesce.protocol import receiver_rules
from quiesce.protocol.attempt import Destination, Phase, PullState
from quiesce.protocol.decode_steps import give_back, release_without_proof, settled
from quiesce.protocol.decode_turn import PullerTurn
from quiesce.protocol.messages import AbortAck, Body, Committed, Fail, Failure, Fault, Fenced, Offer
from quiesce.protocol.puller_io import CloseEndpoint
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.receiver_io import Hold, Proof, Quarantine, RequestFailed, StartTimer, StopTimers, Timer

ENDED_HERE = Failure("aborted", "Decode ended the hand-off.", Fault.DECODE, 503)
ENDPOINT_CLOSED = Failure("endpoint_closed", "Decode closed its transport.", Fault.DECODE, 503)


def fail(turn: PullerTurn, attempt: PullState, failure: Failure) -> None:
    """Hold first, launch nothing more (rule 1); what is proved already is acked and released at once."""
    held = _hold(turn, attempt)
    turn.send(attempt.attempt, _of_ranks(held, rules.unproved(held)), Fail(failure))
    turn.emit(RequestFailed(attempt.attempt, failure))
    settle(turn, held)


def _hold(turn: PullerTurn, attempt: PullState) -> PullState:
    number = attempt.attempt
    held = replace(attempt, phase=Phase.HOLDING, queued=Map(), resend_round=0)
    turn.put(held)
    turn.emit(StopTimers(number), Hold(number, rules.awaiting(held)), StartTimer(number, Timer.HOLD))
    return held


def _of_ranks(attempt: PullState, ranks: tuple[int, ...]) -> tuple[Destination, ...]:
    return tuple(each for each in attempt.destinations() if each.decode_rank in ranks)


def settle(turn: PullerTurn, attempt: PullState) -> None:
    """After anything about an ended attempt changed: ack what may be acked, once, and release what is proved."""
    if receiver_rules.is_held(attempt):
        quiet = tuple(r for r in range(len(attempt.leases)) if rules.may_ack(attempt, r) and r not in attempt.quiet)
        attempt = replace(attempt, quiet=attempt.quiet.union(quiet))
        turn.put(attempt)
        turn.send(attempt.attempt, _of_ranks(attempt, quiet), AbortAck())
    attempt = give_back(turn, attempt, rules.proof_for)
    settled(turn, attempt, rules.may_forget(attempt))


def answer(turn: PullerTurn, attempt: PullState, there: Destination, body: Body) -> None:
    """A rank asks about an attempt that is not under way: say what it may do with its pages, if that is known."""
    if attempt.phase is Phase.COMMITTED:
        turn.send(attempt.attempt, [there], Committed())
    elif there.decode_rank in attempt.quiet:
        turn.send(attempt.attempt, [there], AbortAck())
    elif isinstance(body, Offer):
        turn.send(attempt.attempt, [there], Fail(ENDED_HERE))
    else:
        turn.ignore(kind_of(body), Reason.OUTSTANDING)


def close(turn: PullerTurn) -> None:
    """Decode's own endpoint is closed and joined: what was launched is over, however its reads were reported."""
    touched = [each for _, each in sorted(turn.state.attempts.items()) if rules.unproved(each)]
    for attempt in touched:
        _fence(turn, attempt)
    if not touched:
        turn.ignore("endpoint_closed", Reason.LATE)


def _fence(turn: PullerTurn, attempt: PullState) -> None:
    """What was unproved is fenced; a decode rank whose reads were terminal already, in an attempt under way, acks."""
    ranks = rules.unproved(attempt)
    idle = tuple(r for r in range(len(attempt.leases)) if r not in ranks and r not in attempt.quiet)
    if receiver_rules.is_under_way(attempt):
        attempt = _hold(turn, attempt)
        turn.emit(RequestFailed(attempt.attempt, ENDPOINT_CLOSED))
    over = replace(attempt, outstanding=Map(), poisoned=frozenset(), quiet=attempt.quiet.union(ranks, idle))
    turn.put(over)
    turn.send(attempt.attempt, _of_ranks(attempt, ranks), Fenced())
    turn.send(attempt.attempt, _of_ranks(attempt, idle), AbortAck())
    given = give_back(turn, over, lambda held, rank: Proof.FENCED if rank in ranks else rules.proof_for(held, rank))
    settled(turn, given, rules.may_forget(given))


def hold_expired(turn: PullerTurn, attempt: PullState) -> None:
    """Fence if that costs nothing to others, else quarantine; only `--unsafe-release-on-timeout` frees."""
    if turn.state.unsafe_release_on_timeout:
        release_without_proof(turn, attempt)
    else:
        turn.put(replace(attempt, phase=Phase.QUARANTINED))
        missing = rules.awaiting(attempt)
        turn.emit(CloseEndpoint(attempt.attempt, missing), Quarantine(attempt.attempt, missing))
