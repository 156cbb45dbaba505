"""One data connection at the sender: writes go out one after the other, replies come back in a thread of its own."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable

from quiesce.errors import BadFrame, HandshakeRefused, PeerUnusable
from quiesce.kv.runs import copy_runs, pack_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Write
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.sockets import Buffer, PlainStream, Stream, receive_exactly
from quiesce.transport.tcp.tls import TlsStream
from quiesce.trust.contexts import Tls

CONNECT_S = 5.0
"""To connect, and once more for all that both have to prove."""

Told = Callable[[Outcome, str], None]
"""How a write ended: called once, from any thread."""


class Outbound:
    """`send` is called from one thread; a connection that broke stays broken."""

    def __init__(self, pool: Pool, descriptor: wire.TcpDescriptor, tls: Tls | None = None) -> None:
        """Connect and prove the ticket. Raises PeerUnusable or HandshakeRefused; nothing was written then."""
        self._memory = pool.page_view().reshape(-1).data
        self._page_bytes = pool.layout.page_bytes
        self._number = 0
        self._pending: dict[int, tuple[Write, Told]] = {}
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._broken = ""
        self._stream = connect(descriptor, tls, "decode")
        self._replies = threading.Thread(target=self._hear, name="page-replies", daemon=True)
        self._replies.start()

    @property
    def broken(self) -> bool:
        return bool(self._broken)

    @property
    def is_spent(self) -> bool:
        """Whether another connection should take what comes next."""
        return self._stream.is_spent

    def carries(self, write: Write) -> bool:
        """Whether `write` is under way here."""
        with self._lock:
            return any(each is write for each, _ in self._pending.values())

    def send(self, write: Write, may_leave: Callable[[], bool], told: Told) -> None:
        """Send one write whole: failed_quiesced when the kernel took no byte of a page, unknown when it took some.

        `may_leave` is asked once `carries` answers for the write: whoever gives it up from then on finds it here.
        """
        with self._lock:
            broken = self._broken
            if not broken:
                self._number += 1
                number, self._pending[self._number] = self._number, (write, told)
        if broken:
            told(Outcome.FAILED_QUIESCED, broken)
            return
        if not may_leave():
            self._tell(number, Outcome.FAILED_QUIESCED, "its time was over before it left")
            return
        try:
            self._stream.send(self._announcement(number, write))  # by itself: the receiver reads it meanwhile
            self._stream.send(self._pages(write))
        except OSError as error:
            if not error.sent_bytes:  # type: ignore[attr-defined]
                self._tell(number, Outcome.FAILED_QUIESCED, f"no byte of a page was sent: {error}")
            self.fail(f"the connection broke: {error}")

    def fail(self, reason: str) -> None:
        """Break the connection, from any thread: what has no reply may still land."""
        with self._lock:
            self._broken = self._broken or reason
            pending, self._pending = self._pending, {}
            self._settled.notify_all()
        self._stream.hang_up()
        for _, told in pending.values():
            told(Outcome.FAILED_IN_FLIGHT, f"{reason}; it may still land")

    def finish(self) -> None:
        """No write follows: wait until each one has its reply or was given up, then close.

        Who launched them sees to it that this ends: a write whose deadline passes is given up (`fail`).
        """
        with self._lock:
            self._settled.wait_for(lambda: not self._pending)
            self._broken = self._broken or "the sender is closed"
        self._stream.hang_up()
        self._replies.join()
        self._stream.close()
        self._memory.release()

    def _announcement(self, number: int, write: Write) -> list[Buffer]:
        metadata = write.metadata
        slot = None if metadata is None else metadata.slot
        runs = pack_runs(write.target_pages)
        header = wire.Header(number, write.tag, len(write.target_pages), len(runs) // wire.RUN_BYTES, slot)
        words = b"" if metadata is None else wire.encode_words(metadata.words)
        return [wire.encode_header(header), words, runs]

    def _pages(self, write: Write) -> list[Buffer]:
        copies = copy_runs(write.source_pages, write.source_pages)
        begins = (copies.source * self._page_bytes).tolist()
        ends = ((copies.source + copies.pages) * self._page_bytes).tolist()
        return [self._memory[begin:end] for begin, end in zip(begins, ends, strict=True)]

    def _hear(self) -> None:
        try:
            while True:
                number, verdict, n_reason = wire.decode_reply(receive_exactly(self._stream, wire.REPLY_BYTES))
                if verdict is wire.Verdict.COMING:
                    raise BadFrame("pages come in answer to a write")
                reason = receive_exactly(self._stream, n_reason).decode(errors="replace")
                landed = verdict is wire.Verdict.LANDED
                self._tell(number, Outcome.LANDED if landed else Outcome.FAILED_QUIESCED, reason)
        except (PeerUnusable, OSError) as error:
            self.fail(f"the receiver hung up: {error}")

    def _tell(self, number: int, outcome: Outcome, reason: str) -> None:
        with self._lock:
            pending = self._pending.pop(number, None)
            self._settled.notify_all()
        if pending is not None:  # what was declared unknown already stays so
            pending[1](outcome, reason)


def connect(descriptor: wire.TcpDescriptor, tls: Tls | None, role: str) -> Stream:
    """A connection on which our ticket is proved, and with `tls` that a worker of that `role` is there.

    Raises PeerUnusable; nothing was written then, and nothing read.
    """
    where = f"{descriptor.host}:{descriptor.port}"
    try:
        sock = socket.create_connection((descriptor.host, descriptor.port), timeout=CONNECT_S)
    except OSError as error:
        raise PeerUnusable(f"cannot connect to {where}: {error}", took_effect=False) from error
    stream = PlainStream(sock) if tls is None else TlsStream(sock, tls, role, descriptor.host)
    until_s = time.monotonic() + CONNECT_S
    try:
        stream.shake_hands(until_s)
        _authenticate(stream, descriptor, until_s)
        stream.settimeout(None)
        stream.tune()
    except (OSError, PeerUnusable) as error:
        stream.close()
        raise PeerUnusable(f"{where} did not take our ticket: {error}", took_effect=False) from error
    return stream


def _authenticate(stream: Stream, descriptor: wire.TcpDescriptor, until_s: float) -> None:
    mine = secrets.token_bytes(wire.CHALLENGE_BYTES)
    stream.send([wire.MAGIC, descriptor.ticket, mine])
    theirs = receive_exactly(stream, wire.CHALLENGE_BYTES, until_s)
    given = receive_exactly(stream, wire.PROOF_BYTES, until_s)
    if not wire.is_proof(given, wire.proof(descriptor.key, b"receiver", mine, theirs)):
        raise HandshakeRefused("it does not know the key of our ticket")
    stream.send([wire.proof(descriptor.key, b"sender", mine, theirs)])
    if receive_exactly(stream, len(wire.MAGIC), until_s) != wire.MAGIC:
        raise HandshakeRefused("it speaks another protocol")
