"""The receiver machine with one rule left out of one function."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from quiesce.ids import Peer
from quiesce.protocol import decode_steps, receiver, receiver_holds, receiver_rules
from quiesce.protocol.attempt import AttemptState, Destination, Phase
from quiesce.protocol.messages import Abort, OpenAttempts
from quiesce.protocol.receiver_io import (
    Cache,
    FenceProved,
    Hold,
    PeerReplaced,
    Proof,
    Release,
    RequestFailed,
    StartTimer,
    StopTimers,
    Timer,
)


def free_without_hold(code: str) -> Any:
    """Rule 2: failing for this reason gives the pages back at once."""
    honest = receiver_holds.fail

    def fail(turn: Any, attempt: AttemptState, failure: Any) -> None:
        if failure.code != code:
            honest(turn, attempt, failure)
            return
        turn.send(attempt.attempt, attempt.destinations(), Abort())
        turn.emit(StopTimers(attempt.attempt), RequestFailed(attempt.attempt, failure))
        turn.emit(*(Release(attempt.attempt, rank, Proof.DRAINED) for rank in range(len(attempt.leases))))
        turn.forget(attempt.attempt)

    return fail


def abort_before_hold(turn: Any, attempt: AttemptState, failure: Any) -> None:
    held = replace(attempt, phase=Phase.HOLDING)
    turn.put(held)
    turn.send(attempt.attempt, attempt.destinations(), Abort())
    turn.emit(Hold(attempt.attempt, receiver_rules.awaiting(held)), StartTimer(attempt.attempt, Timer.HOLD))
    turn.emit(StartTimer(attempt.attempt, Timer.RESEND), RequestFailed(attempt.attempt, failure))
    receiver_holds.settle(turn, held)


def unbound_needs_no_ack(attempt: AttemptState, there: Destination) -> bool:
    return there not in attempt.bound or honest_proof(attempt, there)


honest_proof = receiver_rules.counts_as_proof


def first_proof_suffices(attempt: AttemptState, rank: int) -> Proof | None:
    mine = [each for each in attempt.destinations() if each.decode_rank == rank]
    return Proof.DRAINED if any(honest_proof(attempt, each) for each in mine) else None


def any_rank_suffices(attempt: AttemptState, rank: int) -> Proof | None:
    found = [honest_proof_for(attempt, each) for each in range(len(attempt.leases))]
    return next((proof for proof in found if proof is not None), None)


honest_proof_for = receiver_rules.proof_for


def proof_by_rank(attempt: AttemptState, there: Destination) -> bool:
    have = {*attempt.acked, *attempt.done, *attempt.fenced}
    return any((x.decode_rank, x.peer.rank) == (there.decode_rank, there.peer.rank) for x in have)


def granted_by_rank(attempt: AttemptState, peer: Peer) -> bool:
    return peer.rank in {each.rank for each in attempt.grants}


def matched_by_room(turn: Any, envelope: Any, *hands_on: Any) -> None:
    """An answer about a finished attempt is taken for the open one."""
    if envelope.attempt not in turn.state.attempts and turn.state.attempts:
        envelope = replace(envelope, attempt=min(turn.state.attempts))
    honest_hear(turn, envelope, *hands_on)


honest_hear = decode_steps.hear


def publish_to_next_life(turn: Any, fact: Any, fail: Any) -> None:
    """The grant moves to the new life; the old one is forgotten with its writes in flight."""
    if not isinstance(fact, PeerReplaced):
        return
    for number in sorted(turn.state.attempts):
        attempt = turn.state.attempts[number]
        if attempt.phase is Phase.PUBLISHED and fact.old in attempt.grants:
            new = Peer(fact.old.rank, type(fact.old.incarnation)(fact.old.incarnation[:2] + "01" + "0" * 28))
            moved = replace(attempt, grants=tuple(new if g == fact.old else g for g in attempt.grants))
            turn.put(moved)
            turn.publish(moved, moved.destinations())


def open_without(*phases: Phase) -> Any:
    def open_attempts(state: Any) -> OpenAttempts:
        listed = (number for number, each in state.attempts.items() if each.phase not in phases)
        return OpenAttempts(state.next_attempt, tuple(sorted(listed)))

    return open_attempts


def commit_anyway(turn: Any, fact: Any, fail: Any) -> None:
    honest_verified(turn, replace(fact, failure=None), fail)


honest_verified = decode_steps.verified


def verify_alone(attempt: AttemptState) -> bool:
    return attempt.phase is Phase.PUBLISHED and any(there.decode_rank == 0 for there in attempt.done)


def verify_first(attempt: AttemptState) -> bool:
    return attempt.phase is Phase.PUBLISHED and bool(attempt.done)


def clock_frees(turn: Any, attempt: AttemptState) -> None:
    decode_steps.release_without_proof(turn, attempt)


def deaf_clock(timer: Timer) -> Any:
    honest = receiver._expire

    def expire(turn: Any, fact: Any) -> None:
        if fact.timer is not timer:
            honest(turn, fact)

    return expire


def ignore_finished(kind: type) -> Any:
    honest = receiver._receive_about_nothing

    def about_nothing(turn: Any, envelope: Any) -> None:
        if not isinstance(envelope.body, kind):
            honest(turn, envelope)

    return about_nothing


def death_is_a_fence(turn: Any, fact: Any, fail: Any) -> None:
    if isinstance(fact, PeerReplaced):
        receiver_holds.fence(turn, FenceProved(fact.old))
    else:
        honest_lose(turn, fact, fail)


honest_lose = decode_steps.lose


def drop_at_timeout(turn: Any, attempt: AttemptState) -> None:
    honest_without_proof(turn, attempt)
    turn.forget(attempt.attempt)


honest_without_proof = decode_steps.release_without_proof


def cache_unverified(turn: Any, attempt: AttemptState) -> None:
    honest_count_done(turn, attempt)
    if turn.state.attempts[attempt.attempt].phase is Phase.LANDED:
        turn.effects.insert(-1, Cache(attempt.attempt))


honest_count_done = receiver._count_done


def cache_failed(turn: Any, attempt: AttemptState, failure: Any) -> None:
    turn.emit(Cache(attempt.attempt))
    honest_fail(turn, attempt, failure)


honest_fail = receiver_holds.fail


def acks_only(attempt: AttemptState, there: Destination) -> bool:
    return there in attempt.acked
