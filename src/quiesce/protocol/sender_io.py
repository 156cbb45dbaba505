"""What goes into the sender machine (one prefill rank) and what comes out (PROTOCOL section 4)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from quiesce.ids import AttemptKey, Digest, Peer, RequestId, Room
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Envelope, Failure, Lease
from quiesce.protocol.receiver_io import Proof


class Outcome(StrEnum):
    """How a launched write ended (PROTOCOL section 6)."""

    LANDED = "landed"
    FAILED_QUIESCED = "failed_quiesced"
    FAILED_IN_FLIGHT = "failed_in_flight"


class SenderTimer(StrEnum):
    """Clocks of the sender; none of them frees anything by itself."""

    ORPHAN = "orphan"  # a PUBLISH without its request
    REQUEST = "request"  # a request without its PUBLISH
    PROGRESS = "progress"  # until a bound attempt says again that it is at work
    RESEND = "resend"
    LENT = "lent"  # pull: how long a window stays open while nobody says that it was read
    FORGET = "forget"  # how long a given-up (room, digest) is remembered


# ---------------------------------------------------------------- inputs


class Arrived(msgspec.Struct, frozen=True):
    """The door admitted the router's half and reserved its source pages. `decode_ranks` PUBLISHes are awaited."""

    request: RequestId
    room: Room
    digest: Digest
    decode_ranks: int = 1


class Refused(msgspec.Struct, frozen=True):
    """The door rejected a request whose PUBLISH may be on its way: remember (room, digest) and answer FAIL (rule 8)."""

    room: Room
    digest: Digest
    failure: Failure


class Ended(msgspec.Struct, frozen=True):
    """Somebody ends a request at prefill: cancel, compute error, deadline, shutdown (rule 2)."""

    request: RequestId
    failure: Failure


class Heard(msgspec.Struct, frozen=True):
    """An envelope from decode arrived, already checked for shape and bounds."""

    envelope: Envelope


class ChunkComputed(msgspec.Struct, frozen=True):
    """Pages [first_page, first_page + pages) of what decode lacks of the prompt are final in the source pool.

    Page 0 is the first after the prefix that decode holds. The last chunk carries what DONE needs.
    """

    request: RequestId
    first_page: int
    pages: int
    last: bool = False
    first_token: int = -1
    payload_digest: str = ""
    first_logprobs: TokenLogprobs | None = None
    cached_tokens: int = 0


class WriteSettled(msgspec.Struct, frozen=True):
    """A launched write is terminal."""

    key: AttemptKey
    write: int
    outcome: Outcome


class DecodeLost(msgspec.Struct, frozen=True):
    """The control stream to a decode rank ended: its attempts stop; nothing is proved by it."""

    decode: Peer


class DecodeReplaced(msgspec.Struct, frozen=True):
    """The decode life `old` is known dead: its attempts are over and its messages are refused from now on.

    The old life is named, not the new one: several decode workers have a rank 0.
    """

    old: Peer


class SourceFenced(msgspec.Struct, frozen=True):
    """The sender's own endpoint is destroyed and joined: frees sources, never permits an ack."""


class SenderTimerFired(msgspec.Struct, frozen=True):
    """A clock of `StartSenderTimer` ran out; `subject` is what it was started for."""

    subject: AttemptKey | RequestId | tuple[Room, Digest]
    timer: SenderTimer


SenderInput = (
    Arrived
    | Refused
    | Ended
    | Heard
    | ChunkComputed
    | WriteSettled
    | DecodeLost
    | DecodeReplaced
    | SourceFenced
    | SenderTimerFired
)

# ---------------------------------------------------------------- effects


class Reply(msgspec.Struct, frozen=True):
    """Send on the control stream to `envelope.to`; if there is none now, drop it (it is re-sent by timer)."""

    envelope: Envelope


class StartCompute(msgspec.Struct, frozen=True):
    """Every awaited destination is bound: compute the prompt. Decode has the first `held_tokens` of it already."""

    request: RequestId
    held_tokens: int


class StopCompute(msgspec.Struct, frozen=True):
    """Stop computing at the next layer."""

    request: RequestId


class Launch(msgspec.Struct, frozen=True):
    """Launch write `write` of attempt `key`: source pages [first_page, first_page + pages) of what decode lacks of
    `request`'s prompt.

    They go into the same positions of `lease`'s runs; the pages' tags are stamped after the bytes, and, when `last`,
    the metadata slot after the tags. The machine counted it before this effect existed (rule 4).
    """

    key: AttemptKey
    request: RequestId
    write: int
    first_page: int
    pages: int
    lease: Lease
    last: bool
    first_token: int = -1


class ReleaseSource(msgspec.Struct, frozen=True):
    """Nobody can read the request's source pages any more: free them, once (rule 13)."""

    request: RequestId
    proof: Proof


class PrefillFailed(msgspec.Struct, frozen=True):
    """Tell the request's owner, once; its source pages may still be held."""

    request: RequestId
    failure: Failure


class CacheSource(msgspec.Struct, frozen=True):
    """The request's full source pages may enter the prefix tree (rule 12): all of it landed. `ReleaseSource` follows,

    and then frees those that did not.
    """

    request: RequestId


class PrefillDone(msgspec.Struct, frozen=True):
    """Every write of the request landed and DONE was sent."""

    request: RequestId


class Poisoned(msgspec.Struct, frozen=True):
    """A write has an unknown fate: this attempt is never acked (rule 5). For metrics and logs."""

    key: AttemptKey


class StartSenderTimer(msgspec.Struct, frozen=True):
    subject: AttemptKey | RequestId | tuple[Room, Digest]
    timer: SenderTimer
    round: int = 0


class StopSenderTimers(msgspec.Struct, frozen=True):
    subject: AttemptKey | RequestId | tuple[Room, Digest]


class SenderIgnored(msgspec.Struct, frozen=True):
    """A message changed nothing: count it by `kind` and `reason`."""

    kind: str
    reason: str


PrefillEffect = (
    Reply
    | StartCompute
    | StopCompute
    | ReleaseSource
    | PrefillFailed
    | CacheSource
    | PrefillDone
    | StartSenderTimer
    | StopSenderTimers
    | SenderIgnored
)
"""What means the same in push and in pull."""

SenderEffect = PrefillEffect | Launch | Poisoned
