"""Peers' memory as a shm sender sees it: one pool for all leases, or a segment for each.

A segment is memory of one lease and of no other, ever. Its descriptor comes over a channel before the lease is
published, with the lease's tag and its number of pages; no pages says that a lease is over. What is written after that
lands in memory that nobody reads, and that the kernel takes back with its last mapping.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading

from quiesce.errors import HandshakeRefused
from quiesce.ids import PageTag
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool

CLOSED = "the target is closed"
OVER = "the lease is over, or never had a segment"
NOTICE = struct.Struct("<QI")
"""Tag and pages. A datagram has up to `MOST_NOTICES`; its descriptor is of the one that has pages."""
MOST_NOTICES = 128
SEGMENT_SLOTS = 1
MOST_SEGMENTS = 16_384
"""Mapped at once; a peer that lends more is not understood."""

log = logging.getLogger(__name__)


class ShmTarget:
    """A peer's pool mapped here. `running` counts writes that may be copying into it."""

    def __init__(self, pool: Pool, nonce: str) -> None:
        self.pool = pool
        self.nonce = nonce
        self.running = 0
        self.closed = False
        self._lock = threading.Lock()  # guards `running` and `closed`

    @property
    def pages(self) -> int:
        return self.pool.pages

    def enter(self, tag: PageTag) -> Pool | str:
        """The memory that a write of this tag goes to, mapped until it has left; or why there is none."""
        with self._lock:
            self.running += not self.closed
            return CLOSED if self.closed else self.pool

    def leave(self, tag: PageTag) -> None:
        with self._lock:
            self.running -= 1
            last = self.closed and self.running == 0
        if last:
            self.pool.close()

    def tidy(self) -> None:
        """Nothing of it is over before it is closed."""

    def close(self) -> None:
        """Nobody enters any more; the mapping goes with the last who leaves."""
        with self._lock:
            self.closed = True
            idle = self.running == 0
        if idle:
            self.pool.close()


class _Segment:
    """`running` writes may be copying into it; when it is `over`, the last of them unmaps it."""

    __slots__ = ("over", "pool", "running")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.running = 0
        self.over = False


class SegmentTarget:
    """A peer that lends a segment for each lease; page numbers of its leases count from 0."""

    def __init__(self, channel_fd: int, layout: Layout, pages: int) -> None:
        """`channel_fd` stays the caller's; it is a socket (else HandshakeRefused). No lease has more than `pages`."""
        self.pages = pages
        self.closed = False
        self._layout = layout
        self._segments: dict[int, _Segment] = {}
        self._lock = threading.Lock()
        self._channel = _socket_of(channel_fd)

    def enter(self, tag: PageTag) -> Pool | str:
        """As `ShmTarget.enter`."""
        with self._lock:
            if self.closed:
                return CLOSED
            self._hear()
            segment = self._segments.get(tag)
            if segment is None or segment.over:
                return OVER
            segment.running += 1
            return segment.pool

    def leave(self, tag: PageTag) -> None:
        with self._lock:
            self._segments[tag].running -= 1
            self._drop_if_unused(tag)

    def close(self) -> None:
        """As `ShmTarget.close`."""
        with self._lock:
            self.closed = True
            self._channel.close()
            for tag in list(self._segments):
                self._end(tag)

    def tidy(self) -> None:
        """Unmap what is over: asked now and then, also when no write comes."""
        with self._lock:
            if not self.closed:
                self._hear()

    def _hear(self) -> None:
        """Read all that came. What is nonsense is dropped: writes that count on it find no segment."""
        while True:
            try:
                notices, fds, _, _ = socket.recv_fds(self._channel, MOST_NOTICES * NOTICE.size + 1, 1)
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("a channel of segments broke: %s", error)
                return
            if not notices:
                return  # the peer has ended
            try:
                self._take(notices, fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def _take(self, notices: bytes, fds: list[int]) -> None:
        if len(notices) % NOTICE.size:
            log.warning("%d bytes on a channel of segments are no notices", len(notices))
            return
        for tag, pages in NOTICE.iter_unpack(notices):
            if pages:
                self._map(tag, pages, fds)
            else:
                self._end(tag)

    def _map(self, tag: int, pages: int, fds: list[int]) -> None:
        may_map = tag not in self._segments and len(self._segments) < MOST_SEGMENTS
        if len(fds) != 1 or pages > self.pages or not may_map:
            log.warning("a segment of %d pages with %d descriptors is refused", pages, len(fds))
            return
        try:
            self._segments[tag] = _Segment(Pool.attach(fds[0], self._layout, pages, SEGMENT_SLOTS))
        except HandshakeRefused as error:
            log.warning("a segment cannot be mapped: %s", error)

    def _end(self, tag: int) -> None:
        if tag in self._segments:
            self._segments[tag].over = True
            self._drop_if_unused(tag)

    def _drop_if_unused(self, tag: int) -> None:
        segment = self._segments[tag]
        if segment.over and not segment.running:
            del self._segments[tag]
            segment.pool.close()


def _socket_of(fd: int) -> socket.socket:
    own = os.dup(fd)
    try:
        channel = socket.socket(fileno=own)
        channel.setblocking(False)
        return channel
    except OSError as error:
        os.close(own)
        raise HandshakeRefused(f"what the peer passed as its channel is no socket: {error}") from error
