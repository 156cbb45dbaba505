"""What a backend is besides when decode may read from prefill (PROTOCOL section 6, *Pull*): capability `pull`.

The *lender* is prefill: it opens a window on source pages, which bears a tag, and its pages are read. The *puller* is
decode: it launches reads into pages of its own and stamps them itself. A launched read ends exactly once, with a
`contract.Completion`:

=================  =====================================================================  =========================
`landed`           every byte is in the puller's pages, and then their tags are stamped    terminal
`failed_quiesced`  nothing of it lands any more; a part may have, and no tag is stamped    terminal
`failed_in_flight` unknown: the library may go on placing into the puller's pages          never; only after `close`
=================  =====================================================================  =========================

Two proofs, each for one side. What the lender revokes frees the *source* only: what was read before is on its way to
the puller's pages and lands there. The puller's pages are free when its own reads are terminal, or when its endpoint
is closed and joined (`Puller.close`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages
from quiesce.protocol.hello import Capabilities
from quiesce.transport.contract import Completion, OnDead


class Read(msgspec.Struct, frozen=True, eq=False):
    """Copy `source_pages[i]` of the lender's pool to `target_pages[i]` of the own pool, then stamp `tag` on the latter.

    Both are int32 arrays of equal length, possibly empty, which nobody changes after the launch. `source_tag` is that
    of the window that lends the source pages, `tag` the own lease's; the puller's own process stamps it, for every
    layer group, when all bytes of the read are there. `id` is the caller's and comes back in the completion.
    """

    id: int
    source_pages: Pages
    source_tag: PageTag
    target_pages: Pages
    tag: PageTag


class Source(Protocol):
    """An opened remote pool to read from."""

    @property
    def pages(self) -> int: ...


class Lender(Protocol):
    """The side whose pool is read; one per prefill process. All methods are called from the event loop's thread."""

    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        """The descriptor and the file descriptors that the handshake passes to `peer`. They stay the lender's.

        Asked again for the same life (its stream broke, or a handshake did not end), it answers what fits the first.
        """

    def lend(self, tag: PageTag, pages: Pages) -> None:
        """Reads that bear `tag` may read `pages` from now on: the window. Called before the offer leaves.

        Windows may share pages: who only reads disturbs nobody. Raises InvariantBroken for a tag that is lent already.
        """

    def revoke(self, tag: PageTag) -> bool:
        """Close the window while reads may be under way, if that is a fact at the source. Idempotent.

        True: by now no byte of a page is taken for a read of that tag, nor will be: the *source* may be used again.
        What was taken before holds what the page held then, and may still land at the reader. False: this backend
        cannot stop what is under way, and has changed nothing.
        """

    def take_back(self, tag: PageTag) -> None:
        """The window is over, by proof or by policy: forget what `lend` permitted. Idempotent, also after `revoke`."""

    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None:
        """Call `on_dead(peer)` once, from `loop`, when no read of `peer` matters any more. Takes over `pidfd`.

        The reader's death frees the source (PROTOCOL section 6): what is still read for it reaches nobody. `pidfd` is
        -1 for a peer on another host: its death cannot be seen. A peer that comes again only changes its `on_dead`.
        """

    def kill(self, peer: Peer) -> None:
        """Shut `peer` out: it reads nothing any more, whatever that takes. `on_dead` follows. Idempotent.

        Raises PeerUnusable when this backend cannot, or does not watch `peer`.
        """

    def is_dead(self, peer: Peer) -> bool:
        """Whether `on_dead` was due for `peer`. False for a peer that was never watched."""

    def close(self) -> None:
        """End the endpoint and join its threads; nothing is served after it. The pool is not closed. Idempotent."""


class Puller(Protocol):
    """The reading side; one per decode process. All methods are called from one thread (the event loop's)."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def completion_fd(self) -> int:
        """Becomes readable when completions wait; read them with `completions`, never the descriptor itself."""

    def open_source(self, descriptor: bytes, fds: Sequence[int]) -> Source:
        """Open what a lender described. The caller keeps `fds` and closes them, at once if it likes.

        Raises HandshakeRefused when descriptor, descriptors' number or memory do not fit.
        """

    def launch(self, source: Source, read: Read) -> None:
        """Start a read and return at once. Never raises for a read that cannot be done: its completion says so."""

    def completions(self) -> list[Completion]:
        """Every read that ended since the last call, each exactly once ever. Works after `close` too."""

    def close_source(self, source: Source) -> None:
        """No read from `source` starts any more: waiting ones end as failed_quiesced, running ones by themselves."""

    def close(self) -> None:
        """End the endpoint and join all threads: after it nothing of any read lands in the own pool.

        That is the fact `EndpointClosed` of the machines, for reads of unknown fate too. Waiting reads end as
        failed_quiesced; running ones need not run to their end. Remove the reader of `completion_fd` first. Idempotent.
        """
