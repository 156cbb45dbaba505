"""A data connection under mutual TLS 1.3.

Ciphertext is read from the socket and written to it as on a plain connection, so `hang_up` wakes whoever waits there;
only what turns it into pages, and pages into it, holds the connection's lock, and that never waits. Bytes are decrypted
where they belong, and so under the lease's lock, at most `CIPHERTEXT_BYTES` at a time.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence

from quiesce.errors import HandshakeRefused
from quiesce.transport.tcp.sockets import PIECE_BYTES, Buffer, Hangup, PlainStream
from quiesce.transport.tcp.spans import Spans
from quiesce.trust.contexts import Tls
from quiesce.trust.grants import grants_of, may_be_some

CIPHERTEXT_BYTES = 256 << 10
RECORD_BYTES = 16 << 10
"""The most that one record of TLS holds."""
MOST_BYTES = (1 << 24) * RECORD_BYTES
"""What one key may encrypt: RFC 8446, 5.5, allows AES-GCM 2^24.5 full records, and Python renews no key."""


class TlsStream(PlainStream):
    """The other end must show a certificate of our CA that permits to be `role`; `host` is whom we dialled, if we did.

    `send` is called by one thread and everything that reads by one, which may be another.
    """

    def __init__(self, sock: socket.socket, tls: Tls, role: str, host: str | None = None) -> None:
        super().__init__(sock)
        self._role = role
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = tls.accepting if host is None else tls.dialling
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=host is None, server_hostname=host)
        self._lock = threading.Lock()  # guards the three above: OpenSSL's object is for one thread at a time
        self._ciphertext = memoryview(bytearray(CIPHERTEXT_BYTES))
        self._unsent = memoryview(b"")
        self._sent_bytes = 0

    @property
    def is_spent(self) -> bool:
        return self._sent_bytes >= MOST_BYTES

    def shake_hands(self, until_s: float) -> None:
        while not self._is_agreed(until_s):
            self.settimeout(_left_s(until_s))
            if not self._fetch(0):
                raise Hangup(torn=True)
        grants = grants_of(self._tls.getpeercert())
        if not may_be_some(grants, self._role):
            raise HandshakeRefused(f"its certificate is for {', '.join(grants)}, and not for a {self._role} worker")

    def _is_agreed(self, until_s: float) -> bool:
        """One step of the handshake. Whatever it comes to, the other side is told."""
        try:
            with self._lock:
                self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        else:
            return True
        finally:
            self.settimeout(_left_s(until_s))
            with contextlib.suppress(OSError):  # it hung up; then there is nothing to read, either
                self._flush()

    # ------------------------------------------------------------ reading

    def recv_into(self, view: memoryview, /) -> int:
        while (n := self._decrypt(view)) is None:
            if not self._fetch(0):
                return 0
        return n

    def take(self, spans: Spans, /) -> int | None:
        if n := self._fill(spans):
            return n
        try:
            return self._fill(spans) or None if self._fetch(socket.MSG_DONTWAIT) else 0
        except BlockingIOError:
            return None

    def _fill(self, spans: Spans) -> int:
        """Decrypt what is here to its place; 0 when no whole record is."""
        n = self._decrypt_into(spans.views(PIECE_BYTES))
        spans.advance(n)
        return n

    def _decrypt_into(self, views: list[memoryview]) -> int:
        filled = 0
        for view in views:
            at = 0
            while at < len(view):
                n = self._decrypt(view[at:])
                if not n:
                    return filled + at
                at += n
            filled += at
        return filled

    def _decrypt(self, view: memoryview) -> int | None:
        """The rest of one record. None: more ciphertext is needed. 0: the other side said that it ends."""
        with self._lock:
            try:
                return self._tls.read(len(view), view)  # type: ignore[return-value]  # as CPython has it
            except ssl.SSLWantReadError:
                return None
            except ssl.SSLZeroReturnError:
                return 0

    def _fetch(self, flags: int) -> int:
        """Take ciphertext from the socket; how much, 0 at its end."""
        n = self._sock.recv_into(self._ciphertext, 0, flags)
        with self._lock:
            self._incoming.write(self._ciphertext[:n])
        return n

    # ------------------------------------------------------------ writing

    def send(self, buffers: Sequence[Buffer], /) -> None:
        for piece in _pieces(buffers):
            while n := self._encrypt(piece):
                piece = piece[n:]
                if self._outgoing.pending >= CIPHERTEXT_BYTES:
                    self._flush()
        self._flush()

    def send_spans(self, spans: Spans, /) -> None:
        while spans.left_bytes:
            views, before = spans.views(PIECE_BYTES), self._sent_bytes
            try:
                self.send(views)
            finally:
                if self._sent_bytes > before:
                    spans.advance(sum(map(len, views)))

    def give(self, spans: Spans, /) -> int | None:
        """What is encrypted is a copy, whether the kernel has taken it yet or not."""
        try:
            self._flush(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        given = 0
        for view in spans.views(PIECE_BYTES):
            given += (n := self._encrypt(view))
            if n < len(view):
                break
        spans.advance(given)
        with contextlib.suppress(BlockingIOError):
            self._flush(socket.MSG_DONTWAIT)
        return given

    def _encrypt(self, piece: memoryview) -> int:
        """About what fits `CIPHERTEXT_BYTES` that are on their way, of however large a piece; how much."""
        at = 0
        with self._lock:
            while at < len(piece) and self._outgoing.pending < CIPHERTEXT_BYTES:
                at += self._tls.write(piece[at : at + CIPHERTEXT_BYTES])
        return at

    def _flush(self, flags: int = 0) -> None:
        """Only by the thread that writes: ciphertext has an order. Raises BlockingIOError if `flags` forbid to wait."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                with self._lock:
                    self._unsent = memoryview(self._outgoing.read())
            n = self._sock.send(self._unsent, flags)
            self._sent_bytes += n
            self._unsent = self._unsent[n:]


def _left_s(until_s: float) -> float:
    return max(until_s - time.monotonic(), 0.001)


def _pieces(buffers: Sequence[Buffer]) -> Iterator[memoryview]:
    """Small neighbours joined, so that records are full; what fills records by itself is copied by nobody."""
    small: list[Buffer] = []
    n_bytes = 0
    for buffer in buffers:
        is_large = len(buffer) >= RECORD_BYTES
        if small and (is_large or n_bytes >= RECORD_BYTES):
            yield memoryview(b"".join(small))
            small, n_bytes = [], 0
        if is_large:
            yield memoryview(buffer)
        else:
            small.append(buffer)
            n_bytes += len(buffer)
    if small:
        yield memoryview(b"".join(small))
