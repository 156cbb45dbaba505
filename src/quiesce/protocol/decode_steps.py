"""What decode does in push and in pull alike: it mints attempts, hears of them, loses peers, commits.

How an attempt fails and what settles it are each machine's own: `fail` and `settle` are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from quiesce.errors import invariant
from quiesce.ids import Attempt
from quiesce.protocol import receiver_rules as rules
from quiesce.protocol.attempt import Destination, H, Handoff, Phase
from quiesce.protocol.decode_turn import AnyTurn
from quiesce.protocol.messages import Body, Committed, Envelope, Failure, Fault
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.receiver_io import (
    Abandon,
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
    Verified,
)

T = TypeVar("T", bound=AnyTurn)
Failing = Callable[[T, Any, Failure], None]

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


def hear(
    turn: T,
    envelope: Envelope,
    about_nothing: Callable[[T, Envelope], None],
    granted: Callable[[T, Any, Destination, Body], None],
) -> None:
    """Pass on what a granted rank says of an open attempt (`granted`), and what is said of none (`about_nothing`)."""
    attempt = turn.state.attempts.get(envelope.attempt)
    if not rules.is_addressed(turn.state, envelope):
        turn.ignore(kind_of(envelope.body), Reason.OTHER_LIFE)
    elif attempt is None:
        about_nothing(turn, envelope)
    elif not rules.is_granted(attempt, envelope.sender):
        turn.ignore(kind_of(envelope.body), Reason.FOREIGN)
    else:
        granted(turn, attempt, Destination(envelope.to.rank, envelope.sender), envelope.body)


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


def verified(turn: T, fact: Verified, fail: Failing[T]) -> None:
    attempt = turn.state.attempts.get(fact.attempt)
    if attempt is None or attempt.phase is not Phase.LANDED:
        turn.ignore("verified", Reason.LATE)
    elif fact.failure is not None:
        fail(turn, attempt, fact.failure)
    else:
        commit(turn, replace(attempt, phase=Phase.VERIFIED))


def commit(turn: AnyTurn, attempt: Handoff) -> None:
    attempt = replace(attempt, phase=Phase.COMMITTED)
    turn.put(attempt)
    told = next(iter(attempt.answers.values()))
    # Rule 12: nowhere else does anything enter the prefix tree.
    turn.emit(StopTimers(attempt.attempt), Cache(attempt.attempt))
    turn.emit(Attach(attempt.attempt, told.first_token, told.first_logprobs, told.cached_tokens))
    turn.send(attempt.attempt, attempt.destinations(), Committed())


def finish(turn: T, number: Attempt, settle: Callable[[T, Any], None]) -> None:
    attempt = turn.state.attempts.get(number)
    if attempt is None or attempt.phase is not Phase.COMMITTED:
        turn.ignore("finished", Reason.UNEXPECTED)
    else:
        settle(turn, attempt)


# ---------------------------------------------------------------- every way to fail holds (rule 2)


def abandon(turn: T, fact: Abandon, fail: Failing[T]) -> None:
    attempt = turn.state.attempts.get(fact.attempt)
    if attempt is None or not rules.is_under_way(attempt):
        turn.ignore("abandon", Reason.LATE)
    else:
        fail(turn, attempt, fact.failure)


def lose(turn: T, fact: StreamLost | PeerReplaced, fail: Failing[T]) -> None:
    """Fail the attempts that a peer's loss ends, in order."""
    before = turn.state.attempts
    for number in sorted(before):
        attempt = before[number]
        if isinstance(fact, PeerReplaced):
            if rules.is_failed_by_new_life(attempt, fact.old):
                words = f"Prefill {fact.old} was replaced by a new life."
                fail(turn, attempt, prefill_failure("prefill_restarted", words))
        elif rules.is_failed_by_loss(attempt, fact.peer):
            fail(turn, attempt, prefill_failure("stream_lost", f"The stream to prefill {fact.peer} ended."))


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
