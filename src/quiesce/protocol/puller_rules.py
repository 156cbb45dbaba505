"""The puller's decisions, one small named function each. Pure: they look and say, they change nothing.

Each is a rule of PROTOCOL sections 4 and 6 with the roles exchanged; the mutant suite replaces them one by one. What
is decided as in push is in `receiver_rules`.
"""

from __future__ import annotations

from quiesce.ids import Peer
from quiesce.protocol import receiver_rules
from quiesce.protocol.attempt import Destination, Phase, PullerState, PullState
from quiesce.protocol.messages import Offer
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.record import Call
from quiesce.protocol.sender_io import Outcome


def fits(attempt: PullState, there: Destination, offer: Offer) -> bool:
    """Every page of the lease has one to be read from."""
    return offer.lease.pages == attempt.leases[there.decode_rank].pages


def may_launch(state: PullerState, attempt: PullState, there: Destination) -> bool:
    """At most `window` reads from one rank into one lease are outstanding; what was failed launches nothing."""
    flying = sum(each == there for each in attempt.outstanding.values())
    return receiver_rules.is_under_way(attempt) and bool(attempt.queued.get(there)) and flying < state.window


def is_poisoned_by(outcome: Outcome) -> bool:
    """Rule 5: only `landed` and `failed_quiesced` leave the count decrementable."""
    return outcome is Outcome.FAILED_IN_FLIGHT


def may_verify(attempt: PullState) -> bool:
    """Rules 8 and 14: every rank in every life that was asked has offered, and every read of it is terminal."""
    offered = all(each in attempt.offers for each in attempt.destinations())
    return attempt.phase is Phase.PUBLISHED and offered and not attempt.queued and not attempt.outstanding


def is_idle(attempt: PullState, decode_rank: int) -> bool:
    """Rule 4: no read into this decode rank's lease is outstanding."""
    return all(each.decode_rank != decode_rank for each in attempt.outstanding.values())


def is_poisoned(attempt: PullState, decode_rank: int) -> bool:
    """Rule 5: a read into this decode rank's lease has an unknown fate."""
    return any(each.decode_rank == decode_rank for each in attempt.poisoned)


def may_ack(attempt: PullState, decode_rank: int) -> bool:
    """Rules 4 and 5: every launched read is terminal, and it is known how it ended."""
    return is_idle(attempt, decode_rank) and not is_poisoned(attempt, decode_rank)


def unproved(attempt: PullState) -> tuple[int, ...]:
    """The decode ranks whose lease something may still land in."""
    return tuple(rank for rank in range(len(attempt.leases)) if not may_ack(attempt, rank))


def awaiting(attempt: PullState) -> tuple[Peer, ...]:
    """The ranks that lent what is still being read, or may be, in order."""
    peers = {each.peer for each in (*attempt.outstanding.values(), *attempt.poisoned)}
    return tuple(peer for peer in attempt.grants if peer in peers)


def proof_for(attempt: PullState, decode_rank: int) -> Proof | None:
    """Section 6: why this decode rank's lease may be given to somebody else, by decode's own proof, or None."""
    if not may_ack(attempt, decode_rank):
        return None
    was_read_into = any(each.decode_rank == decode_rank for each in attempt.offers)
    return Proof.DRAINED if was_read_into else Proof.NEVER_ARMED


def may_forget(attempt: PullState) -> bool:
    """Rule 9: an attempt stays open until every read is proved, released by a clock or not."""
    return not unproved(attempt)


def calls(pages: int, batch_pages: int) -> tuple[Call, ...]:
    """All pages of a lease as reads of at most `batch_pages` pages (0 = one read)."""
    size = batch_pages or pages
    return tuple(Call(first, min(size, pages - first)) for first in range(0, pages, size))
