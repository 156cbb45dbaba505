"""What decode knows about one attempt, and all of them together: the state of its machines, for push and for pull."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec
from immutables import Map

from quiesce.ids import Attempt, Digest, Incarnation, Peer, RequestId, Room
from quiesce.protocol.messages import Done, Lease, Offer
from quiesce.protocol.record import Call


class Phase(StrEnum):
    """The receiver's states (PROTOCOL section 4), and the puller's.

    `PUBLISHED`: prefill was told of the attempt, by PUBLISH or by ASK; in pull it lasts until everything was read.
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


class Handoff(msgspec.Struct, frozen=True):
    """One attempt, in push or in pull. `leases[d]` belongs to decode rank `d`; `released` lists the decode ranks that
    gave theirs back.

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
    released: frozenset[int] = frozenset()
    resend_round: int = 0

    def destinations(self) -> tuple[Destination, ...]:
        """Every (decode rank, prefill rank) pair that was or may have been told, in order."""
        return _destinations(len(self.leases), self.grants)

    @property
    def answers(self) -> Mapping[Destination, Done | Offer]:
        """What each rank made of the prompt, once it said so: its DONE or its OFFER."""
        raise NotImplementedError  # pragma: no cover


class AttemptState(Handoff, frozen=True, cache_hash=True):
    """One attempt in push."""

    done: Map[Destination, Done] = Map()
    acked: frozenset[Destination] = frozenset()
    fenced: frozenset[Destination] = frozenset()

    @property
    def answers(self) -> Mapping[Destination, Done]:
        return self.done


class PullState(Handoff, frozen=True, cache_hash=True):
    """One attempt in pull.

    `queued` are the reads that wait for their turn, `outstanding` those that were launched and are not terminal.
    `poisoned`: a read from there has an unknown fate. `quiet` lists the decode ranks that said ABORT_ACK.
    """

    offers: Map[Destination, Offer] = Map()
    queued: Map[Destination, tuple[Call, ...]] = Map()
    outstanding: Map[int, Destination] = Map()
    poisoned: frozenset[Destination] = frozenset()
    quiet: frozenset[int] = frozenset()

    @property
    def answers(self) -> Mapping[Destination, Offer]:
        return self.offers


@lru_cache(maxsize=1024)
def _destinations(ranks: int, grants: tuple[Peer, ...]) -> tuple[Destination, ...]:
    """Asked at almost every step, and the same for all attempts of a pair of workers."""
    return tuple(Destination(d, peer) for d in range(ranks) for peer in grants)


H = TypeVar("H", bound=Handoff)


class DecodeState(msgspec.Struct, Generic[H], frozen=True, cache_hash=True):
    """A decode worker's hand-offs. An attempt below `next_attempt` that is not in `attempts` is over and released."""

    incarnation: Incarnation
    ranks: int
    unsafe_release_on_timeout: bool = False
    next_attempt: Attempt = Attempt(1)
    attempts: Map[Attempt, H] = Map()


class ReceiverState(DecodeState[AttemptState], frozen=True, cache_hash=True):
    """All that the receiver machine knows."""


class PullerState(DecodeState[PullState], frozen=True, cache_hash=True):
    """All that the puller machine knows. At most `window` reads of at most `batch_pages` pages (0 = all) from one rank
    into one lease are outstanding.
    """

    window: int = 2
    batch_pages: int = 0
    next_read: int = 1


AnyState = DecodeState[Any]
"""Either machine's."""
