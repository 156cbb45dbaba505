"""Peers' memory as a shm sender sees it: one pool for all leases, or a segment for each.

A segment is memory of one lease and of no other, ever. Its descriptor comes over a channel before the lease is
published, as a datagram: the lease's tag and its number of pages; no pages says that the lease is over. What is written
after that lands in memory that nobody reads, and that the kernel takes back with its last mapping.
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
"""Tag and pages."""
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
        """Unmap what is over."""
        with self._lock:
            if not self.closed:
                self._hear()

    def _hear(self) -> None:
        """Read all that came. What is nonsense is dropped: writes that count on it find no segment."""
        while True:
            try:
                notice, fds, _, _ = socket.recv_fds(self._channel, NOTICE.size + 1, 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("a channel of segments broke: %s", error)
                return
            if not notice:
                return  # the peer has ended
            try:
                self._take(notice, fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def _take(self, notice: bytes, fds: list[int]) -> None:
        tag, pages = NOTICE.unpack(notice) if len(notice) == NOTICE.size else (0, 0)
        may_map = len(fds) == 1 and tag not in self._segments and len(self._segments) < MOST_SEGMENTS
        if pages == 0:
            self._end(tag)
        elif may_map and pages <= self.pages:
            try:
                self._segments[tag] = _Segment(Pool.attach(fds[0], self._layout, pages, SEGMENT_SLOTS))
            except HandshakeRefused as error:
                log.warning("a segment cannot be mapped: %s", error)
        else:
            log.warning("a segment of %d pages with %d descriptors is refused", pages, len(fds))

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
        return socket.socket(fileno=own)
    except OSError as error:
        os.close(own)
        raise HandshakeRefused(f"what the peer passed as its channel is no socket: {error}") from error
