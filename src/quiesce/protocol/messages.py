"""What decode and prefill say to each other about one attempt (PROTOCOL section 4).

Every message names its sender (rank, incarnation), its addressee (rank, incarnation) and the attempt; decode's
messages also carry its open attempts (rule 9).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from quiesce.ids import Attempt, Digest, PageTag, Peer, Room
from quiesce.protocol.logprobs import TokenLogprobs


class Fault(StrEnum):
    """Whose fault a failure is. Circuit breakers count only a peer's own."""

    CLIENT = "client"
    ROUTER = "router"
    PREFILL = "prefill"
    DECODE = "decode"
    TRANSPORT = "transport"
    QUIESCE = "quiesce"


class Failure(msgspec.Struct, frozen=True):
    """Why something failed: `code` in snake_case for programs, `message` for people."""

    code: str
    message: str
    fault: Fault
    status: int = 500


class OpenAttempts(msgspec.Struct, frozen=True):
    """Which attempts of one decode incarnation are not released yet: `below` lists those under `watermark`.

    Every attempt at or above the watermark is not minted yet as far as this message knows (so: open); one below it
    and not in `below` is closed: released with proof, or committed and finished.
    """

    watermark: Attempt
    below: tuple[Attempt, ...] = ()

    def is_closed(self, attempt: Attempt) -> bool:
        return attempt < self.watermark and attempt not in self.below


class Lease(msgspec.Struct, frozen=True):
    """The pages and the metadata slot that one decode rank reserved for one attempt: for what it lacks of the prompt.

    `runs` is a packed little-endian uint32 array of (first page, page count) pairs in prompt order; the machines only
    carry it.
    """

    tag: PageTag
    pages: int
    runs: bytes
    metadata_slot: int


class Publish(msgspec.Struct, frozen=True, tag="publish"):
    """decode -> rank: here is where your writes go. `held_tokens` is the prefix decode already has."""

    room: Room
    digest: Digest
    lease: Lease
    prompt_tokens: int
    held_tokens: int = 0


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """rank -> decode: PUBLISH met its request."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """rank -> decode, now and then after BOUND: the prompt is at work or waits for its turn. Nothing depends on one."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """rank -> decode: everything landed. `pages_written` counts per layer group; `payload_digest` may be empty.

    `first_logprobs` belongs to `first_token`, when the request asked for it; `cached_tokens` is how many prompt tokens
    prefill had cached and did not compute. The machines only carry both.
    """

    digest: Digest
    pages_written: tuple[int, ...]
    payload_digest: str
    first_token: int
    first_logprobs: TokenLogprobs | None = None
    cached_tokens: int = 0


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """decode -> rank, in pull: compute this prompt and lend me its pages. `held_tokens` is the prefix decode has."""

    room: Room
    digest: Digest
    prompt_tokens: int
    held_tokens: int = 0


class Offer(msgspec.Struct, frozen=True, tag="offer"):
    """rank -> decode, in pull: read what you lack of the prompt from these pages; the window is open since before this.

    `lease` is the rank's own: its `tag` names the window, its pages are in prompt order, its slot is always 0. The
    other fields are DONE's. Re-sent until decode says that it reads no more, in whatever words.
    """

    digest: Digest
    lease: Lease
    payload_digest: str
    first_token: int
    first_logprobs: TokenLogprobs | None = None
    cached_tokens: int = 0


class Committed(msgspec.Struct, frozen=True, tag="committed"):
    """decode -> rank: DONE was counted, or its attempt is over; stop re-sending. In pull: every read has landed."""


class Fail(msgspec.Struct, frozen=True, tag="fail"):
    """either -> other. `poisoned` says that a write (in pull: a read) of this attempt has an unknown fate (rule 5)."""

    failure: Failure
    poisoned: bool = False


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """decode -> rank, in pull rank -> decode: stop, and ack once nothing of yours can land (or be read) any more."""


class AbortAck(msgspec.Struct, frozen=True, tag="abort_ack"):
    """rank -> decode: aborted, and `outstanding` is 0 (always; it is on the wire so that a reader can check it).

    In pull decode -> rank, asked for or not: no read of this attempt is under way, and none will be launched.
    """

    outstanding: int = 0


class Fenced(msgspec.Struct, frozen=True, tag="fenced"):
    """decode -> rank: a fact at the receiver keeps your writes of this attempt out, for ever.

    In pull: a fact at decode keeps its own reads of this attempt from landing, and from your pages, for ever.
    """


Body = Publish | Ask | Bound | Progress | Done | Offer | Committed | Fail | Abort | AbortAck | Fenced


class Envelope(msgspec.Struct, frozen=True, tag="envelope"):
    """One protocol message on the wire. `open_attempts` is set on every message from decode, never on prefill's."""

    sender: Peer
    to: Peer
    attempt: Attempt
    body: Body
    open_attempts: OpenAttempts | None = None
