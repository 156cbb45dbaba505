"""What carries frames: a Unix socket, a TCP socket, or TLS over one. And who is at its other end."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
from collections.abc import Iterable
from typing import Protocol, TypeGuard

import msgspec

from quiesce.control.credentials import peer_credentials
from quiesce.errors import HandshakeRefused
from quiesce.trust.grants import grants_of, may_be
from quiesce.trust.hosts import hosts_of, is_for

Data = bytes | memoryview


class Connection(Protocol):
    """A connected non-blocking socket, as far as frames need one. `recv` and `send` raise BlockingIOError."""

    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def recv(self, n_bytes: int, /) -> bytes: ...
    def send(self, data: Data, /) -> int: ...
    def sendmsg(self, buffers: Iterable[Data], /) -> int: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class TlsConnection:
    """TLS over a TCP socket whose handshake is done, in the shape of `Connection`."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls: ssl.SSLSocket | None = tls

    def take(self) -> TlsConnection:
        """A new owner; this object is useless afterwards (closing it does nothing), as after `socket.detach`."""
        taken, self._tls = TlsConnection(self._open), None
        return taken

    @property
    def owner(self) -> str:
        """Whose certificate the peer shows, in a form to compare: equal for the one that replaces it.

        Its `role/name` grants say so; one that has none, its subject and alternative names; one without any, the
        certificate itself.
        """
        shown = self._open.getpeercert() or {}
        names = sorted(grant for grant in self.grants if "/" in grant)
        names = names or sorted(str(name) for kind in ("subject", "subjectAltName") for name in shown.get(kind, ()))
        told = str(names).encode() if names else self._open.getpeercert(binary_form=True) or b""
        return hashlib.sha256(told).hexdigest()

    @property
    def grants(self) -> tuple[str, ...]:
        """What the certificate says its owner may be; () when it does not say."""
        return grants_of(self._open.getpeercert())

    @property
    def hosts(self) -> tuple[str, ...]:
        """Which hosts the certificate is for."""
        return hosts_of(self._open.getpeercert())

    @property
    def holds_bytes(self) -> bool:
        """Whether decrypted bytes wait here, of which the descriptor says nothing."""
        return self._open.pending() > 0

    @property
    def socket(self) -> ssl.SSLSocket:
        return self._open

    def fileno(self) -> int:
        return -1 if self._tls is None else self._tls.fileno()

    def setblocking(self, flag: bool, /) -> None:
        self._open.setblocking(flag)

    def recv(self, n_bytes: int, /) -> bytes:
        try:
            return self._open.recv(n_bytes)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def send(self, data: Data, /) -> int:
        try:
            return self._open.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def sendmsg(self, buffers: Iterable[Data], /) -> int:
        """The first of `buffers`, or a part of it: a TLS record is made of one piece of memory."""
        return self.send(next(iter(buffers)))

    def shutdown(self, how: int, /) -> None:
        # Not SSLSocket's own: that forgets the keys, and what is read afterwards would be taken for plain text.
        socket.socket.shutdown(self._open, how)

    def close(self) -> None:
        if self._tls is not None:
            self._tls.close()

    @property
    def _open(self) -> ssl.SSLSocket:
        if self._tls is None:
            raise OSError("this connection was given to another owner")
        return self._tls


class Identity(msgspec.Struct, frozen=True):
    """Who is at the other end. `key` is equal for connections of one process, one certificate's owner, or (insecure)
    one host.

    `grants` are what its certificate says it may be: `role` or `role/name`; () for whoever may be anything. `hosts` are
    those that it is for; () where none is said, as without a certificate.
    """

    key: str
    grants: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def may_be(self, role: str, name: str = "") -> bool:
        return may_be(self.grants, role, name)

    def may_be_at(self, host: str) -> bool:
        return not self.hosts or is_for(self.hosts, host)


def take(connection: Connection) -> Connection:
    """The connection in a new object that alone can close it: whoever accepted it cannot close it under its user."""
    if isinstance(connection, TlsConnection):
        return connection.take()
    if isinstance(connection, socket.socket):
        return socket.socket(fileno=connection.detach())
    return connection


def is_local(connection: Connection) -> TypeGuard[socket.socket]:
    """Whether the peer is on this host: then the kernel vouches for its process, and descriptors can travel."""
    return isinstance(connection, socket.socket) and connection.family == socket.AF_UNIX


def holds_bytes(connection: Connection) -> bool:
    """Whether something can be read although the descriptor may not be readable."""
    return isinstance(connection, TlsConnection) and connection.holds_bytes


def identity_of(connection: Connection) -> Identity:
    if is_local(connection):
        return Identity(f"process {peer_credentials(connection).pid}")
    if isinstance(connection, TlsConnection):
        return Identity(f"certificate of {connection.owner}", connection.grants, connection.hosts)
    if isinstance(connection, socket.socket):
        with contextlib.suppress(OSError):  # it left meanwhile
            return Identity(f"host {connection.getpeername()[0]}")
    return Identity("nobody")


def require_grant(identity: Identity, role: str, name: str) -> None:
    """Raise HandshakeRefused unless the peer's certificate lets it be what it says it is."""
    if not identity.may_be(role, name):
        raise HandshakeRefused(
            f"its certificate is for {', '.join(identity.grants)}, and it says that it is {role} {name}".rstrip()
        )
