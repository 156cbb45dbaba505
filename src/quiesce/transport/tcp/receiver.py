"""The side that listens: it proves who comes and fences by peer; at decode, whose pool is written, by attempt, too."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
import secrets
import socket
import threading
import time

import msgspec

from quiesce.errors import MachineLacksError, PeerUnusable
from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.transport.contract import OnDead
from quiesce.transport.deaths import Watch
from quiesce.transport.refusals import Refusals, RefusedConnection
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.inbound import Guest, Inbound
from quiesce.transport.tcp.leases import Leases
from quiesce.transport.tcp.sockets import PlainStream, Stream, hang_up
from quiesce.transport.tcp.tls import TlsStream
from quiesce.trust.contexts import Tls

TCP_CAPABILITIES = Capabilities(
    drain_ack=True, fence=True, source_fence=True, bounds_checked=True, authenticated=True, pull=True
)
MOST_STRANGERS = 64
"""Connections that have not proved a ticket yet; each has `inbound.AUTHENTICATE_S` to do so."""
MOST_OF_A_PEER = 64
RETRY_S = 0.1
COMPLAINTS_S = 10.0

log = logging.getLogger(__name__)


class TcpHost(Watch):
    """Lets peers with a ticket at the pages of `pool`, each over connections that have a thread of their own.

    A peer's death is no fence by itself: its bytes may lie in our kernel's buffers. So when a watched peer dies its
    connections are closed and their threads joined, and only then `on_dead` is called.
    """

    capabilities = TCP_CAPABILITIES
    admits: str
    """The role of who comes."""

    def __init__(self, pool: Pool, host: str, port: int, tls: Tls | None = None) -> None:
        """Listen on `host`:`port` (0: any free one). Raises MachineLacksError when that cannot be.

        With `tls` nobody is heard who shows no certificate for a worker of the role that `admits` names.
        """
        super().__init__()
        self.refusals = Refusals()
        self._pool = pool
        self._secret = secrets.token_bytes(32)
        self._nonce = secrets.token_hex(16)
        self._host = host
        self._tls = tls
        self._good: set[bytes] = set()  # tickets whose peer was joined; guarded by the lock, as all until the listener
        self._fenced: set[bytes] = set()
        self._connections: dict[Guest, threading.Thread] = {}
        self._closed = threading.Event()
        self._complained_s = -COMPLAINTS_S
        self._lock = threading.Lock()
        try:
            self._listener = socket.create_server((host, port), backlog=64)
        except OSError as error:
            raise MachineLacksError(f"cannot listen for page data on {host}:{port}: {error}") from error
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="page-data-acceptor", daemon=True)
        self._acceptor.start()

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        """A descriptor with the peer's ticket, good once it is watched: a life has one, however often it joins."""
        ticket = self._ticket_of(peer)
        described = wire.TcpDescriptor(
            layout=self._pool.layout,
            pages=self._pool.pages,
            slots=self._pool.slots,
            nonce=self._nonce,
            host=self._host,
            port=self.port,
            ticket=ticket,
            key=wire.key_of(self._secret, ticket),
            tls=self._tls is not None,
        )
        return msgspec.msgpack.encode(described), []

    # ------------------------------------------------------------ peers

    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None:
        super().watch(peer, pidfd, on_dead, loop)
        if peer not in self._dead:
            with self._lock:
                self._good.add(self._ticket_of(peer))

    def kill(self, peer: Peer) -> None:
        """Fence a peer: close its connections, join what serves it, refuse its ticket for ever."""
        if peer in self._dead:
            return
        if peer not in self._watched:
            raise PeerUnusable(f"{peer} is not watched, so it cannot be fenced", took_effect=False)
        watched = self._unwatch(peer)
        self._shut_out(self._ticket_of(peer))
        self._dead.add(peer)
        watched.loop.call_soon(watched.on_dead, peer)

    def _died(self, peer: Peer) -> None:
        self.kill(peer)

    def _shut_out(self, ticket: bytes) -> None:
        with self._lock:
            self._good.discard(ticket)
            self._fenced.add(ticket)
            theirs = [(each, thread) for each, thread in self._connections.items() if each.ticket == ticket]
        _end(theirs)

    def _ticket_of(self, peer: Peer) -> bytes:
        return wire.ticket_of(self._secret, str(peer))

    # ------------------------------------------------------------ connections

    def close(self) -> None:
        """Stop listening and serving, join every thread, call no `on_dead` any more. Idempotent."""
        with self._lock:
            self._closed.set()
            everybody = list(self._connections.items())
        hang_up(self._listener)
        self._acceptor.join()
        self._listener.close()
        _end(everybody)
        super().close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            sock: socket.socket | None = None
            try:
                sock, _ = self._listener.accept()
                self._begin(sock)
            except Exception as error:  # too many files or threads, for now; whatever it is, others may come in
                if sock is not None:
                    sock.close()
                if not self._closed.wait(RETRY_S):
                    self._complain(f"page data cannot be accepted now: {error}")

    def _begin(self, sock: socket.socket) -> None:
        """Strangers have places of their own, and the one that has been silent longest gives way.

        Whoever calls it closes `sock` if it raises.
        """
        guest = self._guest(self._stream_of(sock))
        guest.refusals = self.refusals
        thread = threading.Thread(target=self._run, args=(guest,), name="page-data", daemon=True)
        with self._lock:
            strangers = [each for each in self._connections if not each.ticket]
            if self._closed.is_set():
                sock.close()
                return
            self._connections[guest] = thread
        if len(strangers) >= MOST_STRANGERS:
            self._complain(f"{len(strangers)} connections that prove no ticket: the oldest is closed for a new one")
            strangers[0].close()
        self._start(guest, thread)

    def _stream_of(self, sock: socket.socket) -> Stream:
        return PlainStream(sock) if self._tls is None else TlsStream(sock, self._tls, self.admits)

    @abc.abstractmethod
    def _guest(self, stream: Stream) -> Guest:
        """What serves a new connection."""

    def _start(self, guest: Guest, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                del self._connections[guest]
            raise

    def _complain(self, what: str) -> None:
        """Say it, but not to whoever fills a log by knocking."""
        now_s = time.monotonic()
        if now_s - self._complained_s >= COMPLAINTS_S:
            self._complained_s = now_s
            log.warning(what)

    def _run(self, guest: Guest) -> None:
        try:
            if refused := guest.run(self._is_good):
                self._complain(f"a data connection was refused: {refused}")
        finally:
            with self._lock:
                self._connections.pop(guest, None)

    def _key_of(self, ticket: bytes) -> bytes | None:
        with self._lock:
            if ticket in self._good:
                return wire.key_of(self._secret, ticket)
            fenced = ticket in self._fenced
        self.refusals.count(RefusedConnection.FENCED if fenced else RefusedConnection.UNPROVED)
        return None

    def _is_good(self, guest: Guest) -> bool:
        """Asked after the ticket is known: a peer that was fenced meanwhile has this connection shut, too."""
        with self._lock:
            theirs = sum(each.ticket == guest.ticket for each in self._connections)
            fenced, crowded = guest.ticket not in self._good, theirs > MOST_OF_A_PEER
        if fenced or crowded:
            self.refusals.count(RefusedConnection.FENCED if fenced else RefusedConnection.CROWDED)
        return not (fenced or crowded or self._closed.is_set())


class TcpReceiver(TcpHost):
    """Places what peers send into `pool`, each byte only while the lease it belongs to is armed."""

    admits = "prefill"

    def __init__(
        self,
        pool: Pool,
        host: str = "127.0.0.1",
        port: int = 0,
        leases: Leases | None = None,
        tls: Tls | None = None,
    ) -> None:
        """As `TcpHost`. `leases` is the laboratory's seam."""
        self._leases = leases or Leases(pool.pages)
        super().__init__(pool, host, port, tls)

    def _guest(self, stream: Stream) -> Guest:
        return Inbound(stream, self._pool, self._leases, self._key_of)

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        self._leases.arm(tag, pages, slot)

    def revoke(self, tag: PageTag) -> bool:
        """Always True: after it no byte of that tag is placed, whatever its writers or the network still hold."""
        self._leases.revoke(tag)
        return True

    def disarm(self, tag: PageTag) -> None:
        self._leases.revoke(tag)


def _end(connections: list[tuple[Guest, threading.Thread]]) -> None:
    for guest, _ in connections:
        guest.close()
    for _, thread in connections:
        with contextlib.suppress(RuntimeError):  # it never began
            thread.join()
