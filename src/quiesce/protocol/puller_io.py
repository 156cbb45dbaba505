"""What goes into the puller machine (decode's half of pull) and what comes out (PROTOCOL section 6).

As in `receiver_io`: inputs are facts, effects are orders that are carried out *in the order given*. Words that mean
the same as in push are the receiver's own; only what reading needs is new.
"""

from __future__ import annotations

import msgspec

from quiesce.ids import Attempt, Peer
from quiesce.protocol.messages import Lease
from quiesce.protocol.receiver_io import (
    Abandon,
    DecodeEffect,
    Finished,
    PeerReplaced,
    Received,
    Reserve,
    StreamLost,
    TimerFired,
    Verified,
)
from quiesce.protocol.sender_io import Outcome

# ---------------------------------------------------------------- inputs


class ReadSettled(msgspec.Struct, frozen=True):
    """A launched read is terminal. `landed`: its bytes are in its target pages and their tags are stamped."""

    attempt: Attempt
    read: int
    outcome: Outcome


class EndpointClosed(msgspec.Struct, frozen=True):
    """Decode's own endpoint is closed and joined: no read that was launched before this reads or lands any more.

    A fact at decode, about every read of every attempt; reads launched after it need another endpoint. Reports of
    earlier reads that are fed later are ignored.
    """


PullerInput = (
    Reserve
    | Received
    | ReadSettled
    | Verified
    | Abandon
    | StreamLost
    | PeerReplaced
    | EndpointClosed
    | TimerFired
    | Finished
)

# ---------------------------------------------------------------- effects


class LaunchRead(msgspec.Struct, frozen=True):
    """Launch read `read` of `attempt`: pages [first_page, first_page + pages) of `source`, lent by `peer`.

    They go into the same positions of `target`, decode rank `decode_rank`'s lease; `target.tag` is stamped on those
    pages when the bytes have landed. `source.tag` names the window. The machine counted it before this effect existed
    (rule 4); whatever becomes of it, one `ReadSettled` or `EndpointClosed` must follow.
    """

    attempt: Attempt
    peer: Peer
    read: int
    first_page: int
    pages: int
    source: Lease
    target: Lease
    decode_rank: int = 0


class CloseEndpoint(msgspec.Struct, frozen=True):
    """A hold expired: close and join decode's own endpoint if that costs nothing to others or the policy says so.

    Feed `EndpointClosed` if it was done. `peers` lent what the attempt's unsettled reads read.
    """

    attempt: Attempt
    peers: tuple[Peer, ...]


PullerEffect = DecodeEffect | LaunchRead | CloseEndpoint
