"""What a transport backend is: it moves bytes and tells the truth (PROTOCOL section 6).

A launched write can never be recalled. It ends exactly once, as one of three outcomes:

=================  ====================================================================  ======================
`landed`           placed at the destination, visible to the reader                      counts as drained
`failed_quiesced`  did not land, and nothing of it can land; no source byte is read now  counts as drained
`failed_in_flight` unknown: bytes may still be read from the source or land              never counts as drained
=================  ====================================================================  ======================
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.refusals import Refusals

OnDead = Callable[[Peer], None]
"""Called once, from the event loop, when nothing of a peer can land, or matters, any more."""


class Metadata(msgspec.Struct, frozen=True):
    """What goes into the lease's metadata slot: 8 uint64. Word 0 is the tag and is written last, after all tags."""

    slot: int
    words: tuple[int, ...]


class Write(msgspec.Struct, frozen=True, eq=False):
    """Copy `source_pages[i]` of the own pool to `target_pages[i]` of the target, then stamp `tag` on the latter.

    Both are int32 arrays of equal length, possibly empty, which nobody changes after the launch. `id` is the caller's
    and comes back in the completion. `metadata`, when present, is written after the tags.
    """

    id: int
    source_pages: Pages
    target_pages: Pages
    tag: PageTag
    metadata: Metadata | None = None


class Completion(msgspec.Struct, frozen=True):
    """How a write ended. `seconds` run from launch to end; `n_bytes` is what was asked for; `error` is for people."""

    id: int
    outcome: Outcome
    n_bytes: int
    seconds: float
    error: str = ""


class Target(Protocol):
    """An opened remote pool."""

    @property
    def pages(self) -> int: ...


class Sender(Protocol):
    """The writing side; one per prefill process. All methods are called from one thread (the event loop's)."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def completion_fd(self) -> int:
        """Becomes readable when completions wait; read them with `completions`, never the descriptor itself."""

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> Target:
        """Open what a receiver described. The caller keeps `fds` and closes them, at once if it likes.

        Raises HandshakeRefused when descriptor, descriptors' number or memory do not fit.
        """

    def launch(self, target: Target, write: Write) -> None:
        """Start a write and return at once. Never raises for a write that cannot be done: its completion says so."""

    def completions(self) -> list[Completion]:
        """Every write that ended since the last call, each exactly once ever. Works after `close` too."""

    def close_target(self, target: Target) -> None:
        """No write to `target` starts any more: waiting ones end as failed_quiesced, running ones end by themselves."""

    def close(self) -> None:
        """End waiting writes as failed_quiesced, wait for running ones, join all threads.

        After it no source page is read (`source_fence`). Remove the reader of `completion_fd` first.
        """


class Receiver(Protocol):
    """The side whose pool is written; one per decode process. All methods are called from the event loop's thread."""

    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        """The descriptor and the file descriptors that the handshake passes to `peer`. They stay the receiver's.

        Asked again for the same life (its stream broke, or a handshake did not end), it answers what fits the first.
        """

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        """Writes that bear `tag` may land in `pages` and `slot` from now on. Called before the lease is published."""

    def revoke(self, tag: PageTag) -> bool:
        """End what `arm` permitted while writes may be under way, if that is a fence. Idempotent.

        True: by now nothing of that tag is being placed or will be (*fenced*). False: this backend cannot stop what is
        under way, and has changed nothing.
        """

    def disarm(self, tag: PageTag) -> None:
        """The lease is over, by proof or by policy: forget what `arm` permitted. Idempotent, also after `revoke`."""

    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None:
        """Call `on_dead(peer)` once, from `loop`, when nothing of `peer` can land any more. Takes over `pidfd`.

        `pidfd` is -1 for a peer on another host: its death cannot be seen, and only `kill` ends it.
        A peer that comes again only changes its `on_dead`.
        """

    def kill(self, peer: Peer) -> None:
        """The fence that hurts others: shut `peer` out, whatever that takes. `on_dead` follows. Idempotent.

        Raises PeerUnusable when this process may not, or does not watch `peer`.
        """

    def is_dead(self, peer: Peer) -> bool:
        """Whether `peer` is known to be fenced. False for a peer that was never watched."""

    def close(self) -> None:
        """Offer the pool no more, stop watching, close the descriptors taken over. The pool is not closed. Idempotent.

        Its memory may then be given back, and used for something else, while senders live on: what was mapped to
        nobody else is written no more (and with `Backend.close_fence` that is so of every pool, in place).
        """


@runtime_checkable
class Refusing(Protocol):
    """What a receiver, or a lender, may be besides: one that looks at what comes, and counts what it turns away."""

    @property
    def refusals(self) -> Refusals: ...
