"""One data connection of the side that dials: it proves our ticket, and is used by one thread."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from typing import Generic

from quiesce.errors import HandshakeRefused, PeerUnusable
from quiesce.kv.runs import Pages, runs_of
from quiesce.kv.storage import Pool
from quiesce.transport.flights import J
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.sockets import PlainStream, Stream, receive_exactly
from quiesce.transport.tcp.spans import PageMemory, Spans
from quiesce.transport.tcp.tls import TlsStream
from quiesce.trust.contexts import Tls
from quiesce.trust.wording import in_words

CONNECT_S = 5.0
"""To connect, and once more for all that both have to prove."""


class TcpLine(ABC, Generic[J]):
    """Carries writes, or reads, to one peer's pool; a connection that broke stays broken."""

    dials: str
    """The role of who listens."""

    def __init__(self, pool: Pool, descriptor: wire.TcpDescriptor, tls: Tls | None = None) -> None:
        """Connect and prove the ticket. Raises PeerUnusable or HandshakeRefused; no byte of a page was moved then."""
        self._pool = pool
        self._memory = PageMemory(pool)
        self._number = 0
        self._lock = threading.Lock()
        self._broken = ""
        self._stream = connect(descriptor, tls, self.dials)

    @property
    def broken(self) -> bool:
        return bool(self._broken)

    @property
    def is_spent(self) -> bool:
        """Whether another connection should take what comes next."""
        return self._stream.is_spent

    @abstractmethod
    def carries(self, job: J) -> bool:
        """Whether `job` is under way here."""

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Break the connection, from any thread: what is under way ends soon."""

    @abstractmethod
    def close(self) -> None:
        """By the thread that uses it, when nothing follows."""

    def _spans(self, pages: Pages) -> Spans:
        """The memory of our own `pages` in their order."""
        return self._memory.spans(*runs_of(pages))


def connect(descriptor: wire.TcpDescriptor, tls: Tls | None, role: str) -> Stream:
    """A connection on which our ticket is proved, and with `tls` that a worker of that `role` is there.

    Raises PeerUnusable; nothing was written then, and nothing read.
    """
    where = f"{descriptor.host}:{descriptor.port}"
    try:
        sock = socket.create_connection((descriptor.host, descriptor.port), timeout=CONNECT_S)
    except OSError as error:
        raise PeerUnusable(f"cannot connect to {where}: {in_words(error)}", took_effect=False) from error
    try:
        return _proved(sock, descriptor, tls, role)
    except (OSError, PeerUnusable) as error:
        sock.close()
        raise PeerUnusable(f"the data connection to {where} failed: {in_words(error)}", took_effect=False) from error
    except BaseException:
        sock.close()
        raise


def _proved(sock: socket.socket, descriptor: wire.TcpDescriptor, tls: Tls | None, role: str) -> Stream:
    stream = PlainStream(sock) if tls is None else TlsStream(sock, tls, role, descriptor.host)
    until_s = time.monotonic() + CONNECT_S
    stream.shake_hands(until_s)
    _authenticate(stream, descriptor, until_s)
    stream.settimeout(None)
    stream.tune()
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
