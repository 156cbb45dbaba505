"""What decode does in push and in pull alike: it mints attempts, hears that they are at work, loses peers, commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from quiesce.errors import invariant
from quiesce.ids import Attempt
from quiesce.protocol import receiver_rules as rules
from quiesce.protocol.attempt import DecodeState, Destination, H, Handoff, Phase
from quiesce.protocol.messages import Committed, Failure, Fault
from quiesce.protocol.reasons import Reason
from quiesce.protocol.receiver_io import (
    Attach,
    Cache,
    Minted,
    PeerReplaced,
    Proof,
    Release,
    Reserve,
    StartTimer,
    StopTimers,
    StreamLost,
    Timer,
)
from quiesce.protocol.receiver_turn import AnyTurn

TOO_LATE = Failure("handoff_timeout", "The hand-off did not complete in time.", Fault.PREFILL, 504)


def prefill_failure(code: str, message: str) -> Failure:
    return Failure(code, message, Fault.PREFILL, 503)


def mint(turn: AnyTurn, kind: type[H], fact: Reserve) -> H:
    """The request is an attempt from now on, and its clock runs."""
    invariant(len(fact.leases) == turn.state.ranks, "one_lease_per_rank", f"{len(fact.leases)} leases")
    number = turn.state.next_attempt
    attempt = kind(
        attempt=number,
        request=fact.request,
        room=fact.room,
        digest=fact.digest,
        leases=fact.leases,
        grants=tuple(sorted(set(fact.grants))),
        prompt_tokens=fact.prompt_tokens,
        held_tokens=fact.held_tokens,
        phase=Phase.PUBLISHED if fact.grants else Phase.RESERVED,
    )
    turn.state = replace(turn.state, next_attempt=Attempt(number + 1))
    turn.put(attempt)
    turn.emit(Minted(number, fact.request), StartTimer(number, Timer.HANDOFF))
    return attempt


def bound(turn: AnyTurn, attempt: Handoff, there: Destination) -> None:
    if attempt.phase is not Phase.PUBLISHED:
        turn.ignore("bound", Reason.LATE)
    elif there in attempt.bound:
        turn.ignore("bound", Reason.DUPLICATE)
    else:
        turn.put(replace(attempt, bound=attempt.bound | {there}))


def progressed(turn: AnyTurn, attempt: Handoff, there: Destination) -> None:
    """The clock measures silence, not how long a prompt takes: it begins anew once everybody was heard."""
    if attempt.phase is not Phase.PUBLISHED:
        turn.ignore("progress", Reason.LATE)
        return
    attempt = replace(attempt, heard=attempt.heard | {there})
    if rules.all_at_work(attempt):
        attempt = replace(attempt, heard=frozenset())
        turn.emit(StartTimer(attempt.attempt, Timer.HANDOFF))
    turn.put(attempt)


def commit(turn: AnyTurn, attempt: Handoff) -> None:
    attempt = replace(attempt, phase=Phase.COMMITTED)
    turn.put(attempt)
    told = next(iter(attempt.answers.values()))
    # Rule 12: nowhere else does anything enter the prefix tree.
    turn.emit(StopTimers(attempt.attempt), Cache(attempt.attempt))
    turn.emit(Attach(attempt.attempt, told.first_token, told.first_logprobs, told.cached_tokens))
    turn.send(attempt.attempt, attempt.destinations(), Committed())


def lost(state: DecodeState[H], fact: StreamLost | PeerReplaced) -> Iterator[tuple[H, Failure]]:
    """The attempts that fail because a peer is gone, in order, and why."""
    for number in sorted(state.attempts):
        attempt = state.attempts[number]
        if isinstance(fact, PeerReplaced):
            if rules.is_failed_by_new_life(attempt, fact.old):
                words = f"Prefill {fact.old} was replaced by a new life."
                yield attempt, prefill_failure("prefill_restarted", words)
        elif rules.is_failed_by_loss(attempt, fact.peer):
            yield attempt, prefill_failure("stream_lost", f"The stream to prefill {fact.peer} ended.")


def give_back(turn: AnyTurn, attempt: H, proof_for: Callable[[H, int], Proof | None]) -> H:
    """Release what is proved, each lease once (rule 15)."""
    for rank in range(len(attempt.leases)):
        proof = proof_for(attempt, rank)
        if proof is not None and rules.may_release(attempt, rank):
            turn.emit(Release(attempt.attempt, rank, proof))
            attempt = replace(attempt, released=attempt.released | {rank})
    return attempt


def settled(turn: AnyTurn, attempt: Handoff, is_over: bool) -> None:
    """Forget the attempt when nothing is awaited any more."""
    if is_over:
        turn.emit(StopTimers(attempt.attempt))
        turn.forget(attempt.attempt)
    else:
        turn.put(attempt)


def release_without_proof(turn: AnyTurn, attempt: Handoff) -> None:
    """`--unsafe-release-on-timeout`. The attempt stays open, so that ranks keep refusing what is late (rule 9)."""
    left = [rank for rank in range(len(attempt.leases)) if rules.may_release(attempt, rank)]
    turn.put(replace(attempt, phase=Phase.RELEASED, released=attempt.released.union(left)))
    turn.emit(*(Release(attempt.attempt, rank, Proof.TIMEOUT) for rank in left))
