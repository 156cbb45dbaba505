"""The receiver's decisions, one small named function each. Pure: they look and say, they change nothing.

Each is a rule of PROTOCOL section 4 (or a part of one); the mutant suite replaces them one by one.
Those that speak of a `Handoff` are the puller's too.
"""

from __future__ import annotations

from quiesce.ids import Attempt, Peer
from quiesce.protocol.attempt import AnyState, AttemptState, Destination, Handoff, Phase
from quiesce.protocol.messages import AbortAck, Done, Envelope, Offer, OpenAttempts
from quiesce.protocol.receiver_io import Proof

MAX_RESEND_ROUND = 10
"""Where `StartTimer.round` stops counting: back-off needs no more, and the state stays finite."""

MAX_OPEN_LISTED = 65_536
"""How many open attempts one message lists; with more, the watermark is lowered, which closes less."""

UNDER_WAY = frozenset({Phase.RESERVED, Phase.PUBLISHED, Phase.LANDED})
HELD = frozenset({Phase.HOLDING, Phase.QUARANTINED, Phase.RELEASED})


def is_addressed(state: AnyState, envelope: Envelope) -> bool:
    """It is for this life of this worker, and for a rank that exists."""
    return envelope.to.incarnation == state.incarnation and envelope.to.rank < state.ranks


def is_granted(attempt: Handoff, peer: Peer) -> bool:
    """Rule 8: this very life of the rank was told the destination."""
    return peer in attempt.grants


def is_minted(state: AnyState, attempt: Attempt) -> bool:
    return attempt < state.next_attempt


def is_under_way(attempt: Handoff) -> bool:
    """Not committed and not failed: whatever ends it now makes it fail, and failing holds (rule 2)."""
    return attempt.phase in UNDER_WAY


def is_held(attempt: Handoff) -> bool:
    """Failed, and a proof is still awaited."""
    return attempt.phase in HELD


def tells_own_content(attempt: Handoff, said: Done | Offer) -> bool:
    """DONE is about this request's prompt, and all ranks say the same of first token and payload."""
    others = {(other.first_token, other.payload_digest) for other in attempt.answers.values()}
    return said.digest == attempt.digest and others <= {(said.first_token, said.payload_digest)}


def may_count_ack(attempt: AttemptState, ack: AbortAck) -> bool:
    """Rule 1: acks are tracked from the hold on; one that came before it is no answer to our ABORT."""
    return is_held(attempt) and ack.outstanding == 0


def counts_as_proof(attempt: AttemptState, destination: Destination) -> bool:
    """Nothing of this rank can land in this lease any more: it acked, was DONE (rule 8) or is fenced."""
    return counts_as_drained(attempt, destination) or destination in attempt.fenced


def counts_as_drained(attempt: AttemptState, destination: Destination) -> bool:
    return destination in attempt.acked or destination in attempt.done


def unproved(attempt: AttemptState) -> tuple[Destination, ...]:
    """The destinations whose proof is missing, in order."""
    return tuple(each for each in attempt.destinations() if not counts_as_proof(attempt, each))


def awaiting(attempt: AttemptState) -> tuple[Peer, ...]:
    """The ranks whose proof is missing, in order."""
    missing = {each.peer for each in unproved(attempt)}
    return tuple(peer for peer in attempt.grants if peer in missing)


def to_publish(attempt: Handoff) -> tuple[Destination, ...]:
    """Who has not answered PUBLISH yet."""
    return tuple(each for each in attempt.destinations() if each not in attempt.bound and each not in attempt.answers)


def to_abort(attempt: AttemptState) -> tuple[Destination, ...]:
    """Rule 3: every rank that was or may have been told, bound or not, done or not."""
    return attempt.destinations()


def proof_for(attempt: AttemptState, decode_rank: int) -> Proof | None:
    """Why this decode rank's lease may be given to somebody else, or None (rule 6: per destination)."""
    mine = [each for each in attempt.destinations() if each.decode_rank == decode_rank]
    if not mine:
        return Proof.NEVER_ARMED
    if not all(counts_as_proof(attempt, each) for each in mine):
        return None
    return Proof.DRAINED if all(counts_as_drained(attempt, each) for each in mine) else Proof.FENCED


def may_release(attempt: Handoff, decode_rank: int) -> bool:
    """Rule 15: once."""
    return decode_rank not in attempt.released


def may_forget(attempt: AttemptState) -> bool:
    """Rule 9: an attempt stays open until every destination is proved, released by a clock or not."""
    return not unproved(attempt)


def may_verify(attempt: AttemptState) -> bool:
    """Rules 8 and 14: DONE from every rank in every life that was granted, for every decode rank."""
    return attempt.phase is Phase.PUBLISHED and all(each in attempt.done for each in attempt.destinations())


def all_at_work(attempt: Handoff) -> bool:
    """Rule 17: every rank that owes DONE was heard since the clock began. One that is frozen has no advocate."""
    return all(each in attempt.heard or each in attempt.answers for each in attempt.destinations())


def is_failed_by_loss(attempt: Handoff, peer: Peer) -> bool:
    """A lost stream or a fence ends an attempt that still waits for this rank's DONE."""
    if not is_under_way(attempt) or not is_granted(attempt, peer):
        return False
    return any(each.peer == peer and each not in attempt.answers for each in attempt.destinations())


def is_failed_by_new_life(attempt: Handoff, old: Peer) -> bool:
    """Rule 8: a new life of a granted rank fails the attempt, unless all its DONEs had come, or everything was read."""
    return attempt.phase is Phase.PUBLISHED and is_granted(attempt, old)


def open_attempts(state: AnyState) -> OpenAttempts:
    """Rule 9: what is not released yet: under way, held, quarantined, released by a clock, committed and in use."""
    below = tuple(sorted(state.attempts))
    if len(below) > MAX_OPEN_LISTED:
        return OpenAttempts(below[MAX_OPEN_LISTED], below[:MAX_OPEN_LISTED])
    return OpenAttempts(state.next_attempt, below)
