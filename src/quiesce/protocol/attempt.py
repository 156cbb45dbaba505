"""What decode knows about one attempt, and all of them together: the receiver machine's state."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import msgspec
from immutables import Map

from quiesce.ids import Attempt, Digest, Incarnation, Peer, RequestId, Room
from quiesce.protocol.messages import Done, Lease


class Phase(StrEnum):
    """The receiver's states (PROTOCOL section 4).

    `RESERVED` lasts only where nobody was granted the destination. `VERIFIED` is passed through within one step.
    `RELEASED` is kept as a record only when a clock released the pages: proofs are still awaited then (rule 9).
    """

    RESERVED = "reserved"
    PUBLISHED = "published"
    LANDED = "landed"
    VERIFIED = "verified"
    COMMITTED = "committed"
    HOLDING = "holding"
    QUARANTINED = "quarantined"
    RELEASED = "released"


class Destination(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """One decode rank's lease as one prefill rank was told it: what a proof is about (rules 6 and 7)."""

    decode_rank: int
    peer: Peer


class AttemptState(msgspec.Struct, frozen=True, cache_hash=True):
    """One attempt. `leases[d]` belongs to decode rank `d`; `released` lists the decode ranks that gave theirs back.

    `heard` has those who said PROGRESS since the clock of rule 17 began.
    """

    attempt: Attempt
    request: RequestId
    room: Room
    digest: Digest
    leases: tuple[Lease, ...]
    grants: tuple[Peer, ...]
    prompt_tokens: int
    held_tokens: int
    phase: Phase = Phase.RESERVED
    bound: frozenset[Destination] = frozenset()
    heard: frozenset[Destination] = frozenset()
    done: Map[Destination, Done] = Map()
    acked: frozenset[Destination] = frozenset()
    fenced: frozenset[Destination] = frozenset()
    released: frozenset[int] = frozenset()
    resend_round: int = 0

    def destinations(self) -> tuple[Destination, ...]:
        """Every (decode rank, prefill rank) pair that was or may have been told, in order."""
        return _destinations(len(self.leases), self.grants)


@lru_cache(maxsize=1024)
def _destinations(ranks: int, grants: tuple[Peer, ...]) -> tuple[Destination, ...]:
    """Asked at almost every step, and the same for all attempts of a pair of workers."""
    return tuple(Destination(d, peer) for d in range(ranks) for peer in grants)


class ReceiverState(msgspec.Struct, frozen=True, cache_hash=True):
    """A decode worker's hand-offs. An attempt below `next_attempt` that is not in `attempts` is over and released."""

    incarnation: Incarnation
    ranks: int
    unsafe_release_on_timeout: bool = False
    next_attempt: Attempt = Attempt(1)
    attempts: Map[Attempt, AttemptState] = Map()
