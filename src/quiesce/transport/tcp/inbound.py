"""One data connection at the side that listens: prove who is there; at decode, place what its lease permits."""

from __future__ import annotations

import abc
import logging
import secrets
import ssl
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from quiesce.errors import BadFrame, HandshakeRefused, PeerUnusable
from quiesce.kv.runs import Pages, expand
from quiesce.kv.storage import Pool
from quiesce.transport.refusals import Refusals, RefusedConnection, RefusedTransfer
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.leases import Armed, Leases
from quiesce.transport.tcp.sockets import Hangup, Stream, receive_exactly
from quiesce.transport.tcp.spans import PageMemory, Spans
from quiesce.trust.wording import in_words

AUTHENTICATE_S = 5.0
"""For all of it, however the bytes drip."""
Runs = npt.NDArray[np.int64]
"""(runs, 2): first page, page count."""
_PAIR = np.dtype("<u4")

KeyOf = Callable[[bytes], bytes | None]
"""The key of a ticket, or None when the ticket is not (or no longer) good."""

log = logging.getLogger(__name__)


class Guest(abc.ABC):
    """Runs in a thread of its own. `join` of that thread after `close` proves that it touches no page any more."""

    def __init__(self, stream: Stream, pool: Pool, key_of: KeyOf) -> None:
        self.ticket = b""
        self.refusals = Refusals()
        self._stream = stream
        self._pool = pool
        self._key_of = key_of
        self._closed = False
        self._memory = PageMemory(pool)

    def close(self) -> None:
        """From any thread: nothing more is moved than the piece at hand; the thread ends by itself."""
        self._closed = True
        self._stream.hang_up()

    def run(self, joined: Callable[[Guest], bool]) -> str:
        """Serve until the peer hangs up. `joined(self)` is asked once the ticket is proved; False ends it.

        Why somebody was turned away who tried to prove something, or "".
        """
        try:
            self._authenticate()
            if joined(self):
                self._stream.tune()
                while not self._closed:
                    self._serve()
        except Hangup as error:
            if error.torn and self._closed and self.ticket:
                self.refusals.count(RefusedTransfer.FENCED)
            matters = error.torn and self.ticket and not self._closed  # anybody may knock, and hang up
            log.log(logging.WARNING if matters else logging.DEBUG, "%s", error)
        except (PeerUnusable, OSError) as error:
            if isinstance(error, BadFrame) and self.ticket:
                self.refusals.count(RefusedTransfer.MALFORMED)
            what, why = "broke" if isinstance(error, OSError) else "was refused", in_words(error)
            log.log(logging.WARNING if self.ticket else logging.DEBUG, "a data connection %s: %s", what, why)
            return "" if self.ticket or not isinstance(error, (HandshakeRefused, ssl.SSLError)) else why
        finally:
            self._memory.release()
            self._stream.close()
        return ""

    def _authenticate(self) -> None:
        until_s = time.monotonic() + AUTHENTICATE_S
        self._shake_hands(until_s)
        if receive_exactly(self._stream, len(wire.MAGIC), until_s) != wire.MAGIC:
            raise BadFrame("what connected does not speak our data protocol")
        ticket = receive_exactly(self._stream, wire.TICKET_BYTES, until_s)
        theirs = receive_exactly(self._stream, wire.CHALLENGE_BYTES, until_s)
        mine = secrets.token_bytes(wire.CHALLENGE_BYTES)
        known = self._key_of(ticket)
        key = known or secrets.token_bytes(wire.PROOF_BYTES)  # an unknown ticket learns no more than a wrong proof
        self._stream.send([mine + wire.proof(key, b"receiver", theirs, mine)])
        given = receive_exactly(self._stream, wire.PROOF_BYTES, until_s)
        if not wire.is_proof(given, wire.proof(key, b"sender", theirs, mine)) or known is None:
            if known is not None:  # else it was counted when it was looked up
                self.refusals.count(RefusedConnection.UNPROVED)
            raise HandshakeRefused("a peer could not prove its ticket")
        self._stream.send([wire.MAGIC])
        self._stream.settimeout(None)
        self.ticket = ticket

    def _shake_hands(self, until_s: float) -> None:
        try:
            self._stream.shake_hands(until_s)
        except (HandshakeRefused, ssl.SSLError):
            self.refusals.count(RefusedConnection.UNCERTIFIED)
            raise

    @abc.abstractmethod
    def _serve(self) -> None:
        """One write or read, from its header to its end."""

    def _spans(self, runs: Runs) -> Spans:
        """The memory of `runs` in their order."""
        return self._memory.spans(runs[:, 0], runs[:, 1])

    def _read_runs(self, n_runs: int, n_pages: int) -> Runs:
        if n_pages > self._pool.pages:
            raise BadFrame(f"{n_pages} pages of a pool of {self._pool.pages}")
        pairs = np.frombuffer(receive_exactly(self._stream, n_runs * wire.RUN_BYTES), _PAIR).reshape(-1, 2)
        runs = pairs.astype(np.int64)
        counts = runs[:, 1]
        if counts.sum() != n_pages or np.any(counts == 0) or np.any(runs.sum(axis=1) > self._pool.pages):
            raise BadFrame("the runs do not fit their header or the pool")
        return runs


class Inbound(Guest):
    """At decode: places what its writer sends."""

    def __init__(self, stream: Stream, pool: Pool, leases: Leases, key_of: KeyOf) -> None:
        super().__init__(stream, pool, key_of)
        self._leases = leases

    # ------------------------------------------------------------ one write

    def _serve(self) -> None:
        header = wire.decode_header(receive_exactly(self._stream, wire.HEADER_BYTES))
        words = () if header.slot is None else wire.decode_words(receive_exactly(self._stream, wire.WORDS_BYTES))
        runs = self._read_runs(header.runs, header.pages)
        pages = expand(runs[:, 0], runs[:, 1])
        armed = self._leases.find(header.tag, pages, header.slot)
        if isinstance(armed, str):
            self._discard(len(pages) * self._pool.layout.page_bytes)
            self._refuse(header, armed if isinstance(armed, RefusedTransfer) else RefusedTransfer.NOT_LEASED)
        elif self._place(armed, runs) and self._seal(armed, pages, words):
            self._stream.send([wire.encode_reply(header.number, wire.Verdict.LANDED, "")])
        else:
            self._refuse(header, RefusedTransfer.REVOKED)

    def _refuse(self, header: wire.Header, why: RefusedTransfer) -> None:
        self.refusals.count(why)
        self._stream.send([wire.encode_reply(header.number, wire.Verdict.REFUSED, why)])

    # ------------------------------------------------------------ placing

    def _place(self, armed: Armed, runs: Runs) -> bool:
        """Read the payload straight into the pages; False when the lease was revoked, the rest is discarded then.

        A revocation waits for one call that takes what has come already (`PIECE_BYTES` at most), never for the peer.
        """
        spans = self._spans(runs)
        while spans.left_bytes:
            with armed.lock:
                if armed.revoked:
                    break
                if self._closed:
                    raise Hangup(torn=True)
                n = self._stream.take(spans)
            if n is None:
                self._stream.wait()
            elif n == 0:
                raise Hangup(torn=True)
        self._discard(spans.left_bytes)
        return not spans.left_bytes

    def _seal(self, armed: Armed, pages: Pages, words: tuple[int, ...]) -> bool:
        """Nothing is sealed once the lease was revoked, although every byte is there."""
        with armed.lock:
            if armed.revoked or self._closed:
                return False
            armed.seal(self._pool, pages, words)
            return True

    def _discard(self, n_bytes: int) -> None:
        scratch = memoryview(bytearray(min(n_bytes, 1 << 16)))
        while n_bytes:
            n = self._stream.recv_into(scratch[: min(n_bytes, len(scratch))])
            if n == 0:
                raise Hangup(torn=True)
            n_bytes -= n
