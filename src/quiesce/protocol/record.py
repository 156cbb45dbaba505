"""What a prefill rank knows about attempts, requests and decode lives: its machine's state, for push and for pull."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from immutables import Map

from quiesce.ids import Attempt, AttemptKey, Digest, Incarnation, PageTag, Peer, RequestId, Room
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Done, Failure, Lease, Offer, OpenAttempts

Meeting = tuple[Room, Digest]
"""What lets the halves of one hand-off find each other. Never the room alone (PROTOCOL section 2)."""

NO_LEASE = Lease(PageTag(0), 0, b"", 0)
NO_REQUEST = RequestId("")


class RecordPhase(StrEnum):
    """The sender's states (PROTOCOL section 4), the lender's. Nothing revives `ACKED`, `DONE`, `TOMBSTONE`."""

    ANNOUNCED = "announced"
    BOUND = "bound"
    SENDING = "sending"
    DRAINED = "drained"  # everything landed; DONE is said until COMMITTED or ABORT
    OFFERED = "offered"  # pull: the window is open; OFFER is said until decode says what became of it
    DONE = "done"
    POISONED = "poisoned"
    ABORTED = "aborted"
    ACKED = "acked"
    TOMBSTONE = "tombstone"


class Call(msgspec.Struct, frozen=True):
    """A write that waits for its turn: pages [first_page, first_page + pages) of the lease."""

    first_page: int
    pages: int
    last: bool = False


class Record(msgspec.Struct, frozen=True, cache_hash=True):
    """One attempt at this rank.

    `outstanding` holds the writes that were launched and are not terminal. `poisoned`: one of them has an unknown
    fate. `fenced`: the receiver keeps our writes out. `source_fenced`: our own endpoint is gone. `lent` are the source
    pages that decode may read through an open window, in pull. `done` is what is said until it is answered.
    """

    key: AttemptKey
    phase: RecordPhase
    room: Room = Room(0)
    digest: Digest = Digest("")
    lease: Lease = NO_LEASE
    held_tokens: int = 0
    request: RequestId = NO_REQUEST
    queued: tuple[Call, ...] = ()
    outstanding: frozenset[int] = frozenset()
    pages_launched: int = 0
    poisoned: bool = False
    fenced: bool = False
    source_fenced: bool = False
    abort_heard: bool = False
    failure: Failure | None = None
    done: Done | Offer | None = None
    resend_round: int = 0
    lent: Lease = NO_LEASE

    @property
    def meeting(self) -> Meeting:
        return (self.room, self.digest)


class RequestPhase(StrEnum):
    WAITING = "waiting"  # for PUBLISH of every decode rank
    COMPUTING = "computing"
    COMPUTED = "computed"
    LENT = "lent"  # pull: its owner knows that it is done; its source pages are not free yet
    FAILED = "failed"


class RequestState(msgspec.Struct, frozen=True, cache_hash=True):
    """One request at prefill, from the door until its source pages are free.

    `next_page` is the lease's page the next chunk starts with, -1 before the first. `freed_by_fence`: a write of it
    was kept from its source by a fence, not by settling.
    """

    request: RequestId
    room: Room
    digest: Digest
    decode_ranks: int
    phase: RequestPhase = RequestPhase.WAITING
    bound: tuple[AttemptKey, ...] = ()
    next_page: int = -1
    first_token: int = -1
    payload_digest: str = ""
    first_logprobs: TokenLogprobs | None = None
    cached_tokens: int = 0
    freed_by_fence: bool = False

    @property
    def meeting(self) -> Meeting:
        return (self.room, self.digest)


class SenderState(msgspec.Struct, frozen=True, cache_hash=True):
    """A prefill rank's hand-offs. `lives` has what each decode life said of its open attempts, merged (rule 9)."""

    me: Peer
    window: int
    batch_pages: int
    next_write: int = 1
    records: Map[AttemptKey, Record] = Map()
    requests: Map[RequestId, RequestState] = Map()
    given_up: Map[Meeting, Failure] = Map()
    lives: Map[Incarnation, OpenAttempts] = Map()
    dead: frozenset[Incarnation] = frozenset()


FIRST_OPEN = OpenAttempts(Attempt(1))
"""Before a decode life said anything: nothing of it is closed."""
