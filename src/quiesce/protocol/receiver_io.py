"""What goes into the receiver machine and what comes out (PROTOCOL section 4).

Inputs are facts that the worker learned; effects are orders that the worker's executor carries out *in the order
given*. Both are data. The order is part of the contract: a hold is armed before the first ABORT leaves (rule 1).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from quiesce.ids import Attempt, Digest, Peer, RequestId, Room
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Envelope, Failure, Lease


class Proof(StrEnum):
    """Why a page may be given to somebody else. `TIMEOUT` is no proof: only `--unsafe-release-on-timeout` makes it."""

    NEVER_ARMED = "never_armed"
    DRAINED = "drained"
    FENCED = "fenced"
    TIMEOUT = "timeout"


class Timer(StrEnum):
    """Clocks that the executor runs. None of them ever frees anything by itself."""

    HANDOFF = "handoff"
    HOLD = "hold"
    RESEND = "resend"


class LandingMode(StrEnum):
    """What the pages of a lease are. The machine does not care; whoever reads its steps must know.

    `direct`: pages of the pool, the lease's until its release. `staged`: pages beside it, others' from commit on, or
    from release. `segment`: memory of this lease alone, whose pages count from 0.
    """

    DIRECT = "direct"
    STAGED = "staged"
    SEGMENT = "segment"


# ---------------------------------------------------------------- inputs


class Reserve(msgspec.Struct, frozen=True):
    """Decode admitted a request and allocated one lease per decode rank; mint the attempt and publish to `grants`.

    Leases have no page for the first `held_tokens` tokens: those are in pages that decode shares and nobody writes.
    """

    request: RequestId
    room: Room
    digest: Digest
    leases: tuple[Lease, ...]
    grants: tuple[Peer, ...]
    prompt_tokens: int
    held_tokens: int = 0
    landing: LandingMode = LandingMode.DIRECT


class Received(msgspec.Struct, frozen=True):
    """An envelope arrived, already checked for shape and bounds; identity is checked by the machine."""

    envelope: Envelope


class Verified(msgspec.Struct, frozen=True):
    """The coverage check of `Verify` ended; `failure` is None when every page bore the lease's tag (rule 11)."""

    attempt: Attempt
    failure: Failure | None = None


class Abandon(msgspec.Struct, frozen=True):
    """Somebody or something ends the request before commit: client, router, abort, deadline, shutdown (rule 2)."""

    attempt: Attempt
    failure: Failure


class StreamLost(msgspec.Struct, frozen=True):
    """The control stream to a rank ended. Its attempts under way fail; nothing is proved by it."""

    peer: Peer


class PeerReplaced(msgspec.Struct, frozen=True):
    """The worker whose life was `old` said HELLO as a new incarnation (rule 8): attempts granted to `old` fail.

    Re-registration is no evidence that old writes are over, so nothing is released by it. The old life is named, not
    the new one: several prefill workers have a rank 0, and a rank number alone does not say whose it is.
    """

    old: Peer


class FenceProved(msgspec.Struct, frozen=True):
    """A fact at the receiver keeps `peer`'s writes out: of one attempt, or (None) of every attempt granted to it."""

    peer: Peer
    attempt: Attempt | None = None


class TimerFired(msgspec.Struct, frozen=True):
    """A clock of `StartTimer` ran out."""

    attempt: Attempt
    timer: Timer


class Finished(msgspec.Struct, frozen=True):
    """A committed attempt's request no longer uses its lease (finished, stopped or retracted)."""

    attempt: Attempt


ReceiverInput = (
    Reserve | Received | Verified | Abandon | StreamLost | PeerReplaced | FenceProved | TimerFired | Finished
)

# ---------------------------------------------------------------- effects


class Minted(msgspec.Struct, frozen=True):
    """`request` is now `attempt`. Always the first effect of `Reserve`."""

    attempt: Attempt
    request: RequestId


class Send(msgspec.Struct, frozen=True):
    """Send on the control stream to `envelope.to`; if there is none now, drop it (it is re-sent by timer)."""

    envelope: Envelope


class Verify(msgspec.Struct, frozen=True):
    """Check tags, metadata and digest of every lease of the attempt, then feed `Verified`.

    Every DONE told the same `first_token` and `payload_digest` ("" = digests are off).
    """

    attempt: Attempt
    first_token: int
    payload_digest: str


class Cache(msgspec.Struct, frozen=True):
    """The attempt's full pages may enter the prefix tree (rule 12): they are verified, and nothing can write them.

    Its lease shrinks by the pages that do: they are shared and read-only from now on, and not the attempt's to release.
    """

    attempt: Attempt


class Attach(msgspec.Struct, frozen=True):
    """Committed: the engine may read the pages now. `cached_tokens` is how much of the prompt prefill had cached."""

    attempt: Attempt
    first_token: int
    first_logprobs: TokenLogprobs | None = None
    cached_tokens: int = 0


class RequestFailed(msgspec.Struct, frozen=True):
    """Tell the request's owner, once; the lease may still be held."""

    attempt: Attempt
    failure: Failure


class Hold(msgspec.Struct, frozen=True):
    """The lease is held from now on, waiting for the proofs of `awaiting` (for people: inspect, metrics)."""

    attempt: Attempt
    awaiting: tuple[Peer, ...]


class Release(msgspec.Struct, frozen=True):
    """Free one decode rank's lease of the attempt, once (rule 15)."""

    attempt: Attempt
    decode_rank: int
    proof: Proof


class Quarantine(msgspec.Struct, frozen=True):
    """The hold deadline passed without a proof: out of circulation, counted, until a proof of `awaiting` arrives."""

    attempt: Attempt
    awaiting: tuple[Peer, ...]


class TryFence(msgspec.Struct, frozen=True):
    """Fence these peers if that costs nothing to others or the policy says so; feed `FenceProved` if it worked."""

    attempt: Attempt
    peers: tuple[Peer, ...]


class StartTimer(msgspec.Struct, frozen=True):
    """Start (or restart) a clock. RESEND repeats by being started again, with back-off by `round`."""

    attempt: Attempt
    timer: Timer
    round: int = 0


class StopTimers(msgspec.Struct, frozen=True):
    """Stop every clock of the attempt."""

    attempt: Attempt


class Ignored(msgspec.Struct, frozen=True):
    """A message changed nothing (rule 7): count it by `kind` (message tag) and `reason` (early, late, foreign, ...)."""

    kind: str
    reason: str


DecodeEffect = (
    Minted
    | Send
    | Verify
    | Cache
    | Attach
    | RequestFailed
    | Hold
    | Release
    | Quarantine
    | StartTimer
    | StopTimers
    | Ignored
)
"""What means the same in push and in pull."""

ReceiverEffect = DecodeEffect | TryFence
