"""What goes into the lender machine (one prefill rank's half of pull) and what comes out (PROTOCOL section 6).

Words that mean the same as in push are the sender's own; only what lending needs is new.
"""

from __future__ import annotations

import msgspec

from quiesce.ids import AttemptKey, Peer, RequestId
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Lease
from quiesce.protocol.sender_io import (
    Arrived,
    DecodeLost,
    DecodeReplaced,
    Ended,
    Heard,
    PrefillEffect,
    Refused,
    SenderTimerFired,
)

# ---------------------------------------------------------------- inputs


class Computed(msgspec.Struct, frozen=True):
    """All that decode lacks of the prompt is final in the source pool.

    `leases` has one for each awaited decode rank: the same pages in prompt order, each with a tag of its own, which
    names its window; their slots are 0. The rest is what OFFER says of the prompt.
    """

    request: RequestId
    leases: tuple[Lease, ...]
    first_token: int
    payload_digest: str = ""
    first_logprobs: TokenLogprobs | None = None
    cached_tokens: int = 0


class Revoked(msgspec.Struct, frozen=True):
    """The window of `Lend` is revoked: no read of it is served any more, nor will be. It frees the source only."""

    key: AttemptKey


class ReaderDead(msgspec.Struct, frozen=True):
    """The decode rank's life is over for certain (pidfd, a supervisor's wait status): nobody attends what it read.

    That another life took its place (`DecodeReplaced`) is no such evidence.
    """

    peer: Peer


LenderInput = (
    Arrived | Refused | Ended | Heard | Computed | Revoked | ReaderDead | DecodeLost | DecodeReplaced | SenderTimerFired
)

# ---------------------------------------------------------------- effects


class Lend(msgspec.Struct, frozen=True):
    """Open the window `lease.tag` over `lease`'s pages for `key.decode`, before the OFFER that follows leaves."""

    key: AttemptKey
    request: RequestId
    lease: Lease


class Revoke(msgspec.Struct, frozen=True):
    """Revoke the window, if the backend can; feed `Revoked` when it is a fact. Emitted at most once for a `Lend`."""

    key: AttemptKey
    lease: Lease


class TakeBack(msgspec.Struct, frozen=True):
    """Close the window: nobody can read through it any more, by a proof. Once for each `Lend`."""

    key: AttemptKey
    lease: Lease


LenderEffect = PrefillEffect | Lend | Revoke | TakeBack
"""`PrefillDone` says that OFFER was sent: prefill's part is over, and `PrefillFailed` never follows. `CacheSource` and
`ReleaseSource` come later, with a proof for every window."""
