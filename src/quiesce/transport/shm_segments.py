"""Decode's end of attempt-private memory: each lease lands in a segment of its own (PROTOCOL section 6, staged).

That ends every question of who may still write: a segment is never handed to another lease, so revoking a lease is a
fence at once and costs nobody anything. Whatever is written later lands in an orphan. Its memory is given back to the
kernel when decode is done with it; what a late writer dirties again goes with that writer's mapping.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence

import msgspec

from quiesce.errors import MachineLacksError, PeerUnusable
from quiesce.ids import PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.transport.shm import SHM_CAPABILITIES, ShmDescriptor
from quiesce.transport.shm_targets import MOST_NOTICES, NOTICE, SEGMENT_SLOTS
from quiesce.transport.writer_deaths import WriterDeaths


class _Channel:
    """Both ends of the way to one writer. `late` tags are over, which it could not be told yet."""

    def __init__(self) -> None:
        self.mine, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.mine.setblocking(False)
        self.late: list[PageTag] = []

    def send(self, tag: PageTag, pages: int, fds: Sequence[int] = ()) -> None:
        """Raises OSError when there is no room, or no peer."""
        while len(self.late) >= MOST_NOTICES:
            self._send([], [])
        self._send([NOTICE.pack(tag, pages)], fds)

    def _send(self, notices: list[bytes], fds: Sequence[int]) -> None:
        """These, and as many of those that are late as there is room for."""
        late = self.late[: MOST_NOTICES - len(notices)]
        socket.send_fds(self.mine, [*(NOTICE.pack(tag, 0) for tag in late), *notices], fds)
        del self.late[: len(late)]

    def say_over(self, tag: PageTag) -> None:
        try:
            self.send(tag, 0)
        except OSError:
            self.late.append(tag)

    def close(self) -> None:
        self.mine.close()
        self.theirs.close()


class _Lent(msgspec.Struct, frozen=True, eq=False):
    pool: Pool
    peers: tuple[Peer, ...]


class SegmentReceiver(WriterDeaths):
    """Lends a segment for each lease. Called from the event loop's thread, as every `contract.Receiver`."""

    capabilities = SHM_CAPABILITIES

    def __init__(self, layout: Layout, pages: int) -> None:
        """No lease has more than `pages`."""
        super().__init__()
        self._layout = layout
        described = ShmDescriptor(layout, pages, SEGMENT_SLOTS, secrets.token_hex(16), segmented=True)
        self._descriptor = msgspec.msgpack.encode(described)
        self._channels: dict[Peer, _Channel] = {}
        self._lent: dict[PageTag, _Lent] = {}
        self._over: dict[PageTag, Pool] = {}

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        if peer not in self._channels:
            self._channels[peer] = _Channel()
        return self._descriptor, [self._channels[peer].theirs.fileno()]

    def lend(self, tag: PageTag, n_pages: int, peers: tuple[Peer, ...]) -> None:
        """Make the segment of a lease and pass it to those who will write. Called before the lease is published.

        Raises PeerUnusable when one of them does not listen, or when there is no memory; then nothing is lent.
        """
        try:
            pool = Pool.shared(self._layout, n_pages, SEGMENT_SLOTS)
        except MachineLacksError as error:
            raise PeerUnusable(f"no segment can be made: {error}", took_effect=False) from error
        self._lent[tag] = _Lent(pool, peers)
        for peer in peers:
            try:
                self._channels[peer].send(tag, n_pages, [pool.fd])
            except (OSError, KeyError) as error:
                self.disarm(tag)
                self.reclaim(tag)
                raise PeerUnusable(f"a segment cannot be passed to {peer}: {error}", took_effect=False) from error

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        """Nothing to do: what `lend` passed may be written."""

    def segment(self, tag: PageTag) -> Pool:
        """The memory of a lease, until `reclaim`."""
        return self._lent[tag].pool if tag in self._lent else self._over[tag]

    def revoke(self, tag: PageTag) -> bool:
        """Always True: what is written from now on lands where nobody reads."""
        self.disarm(tag)
        return True

    def disarm(self, tag: PageTag) -> None:
        lent = self._lent.pop(tag, None)
        if lent is None:
            return
        self._over[tag] = lent.pool
        for peer in lent.peers:
            if peer in self._channels:
                self._channels[peer].say_over(tag)

    def reclaim(self, tag: PageTag) -> None:
        """It was disarmed, and nobody here reads it: give its memory back to the kernel, whoever maps it."""
        self._over.pop(tag).discard()

    def close(self) -> None:
        super().close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _died(self, peer: Peer) -> None:
        if peer in self._channels:
            self._channels.pop(peer).close()
        super()._died(peer)
