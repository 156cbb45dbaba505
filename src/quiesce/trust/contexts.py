"""Mutual TLS 1.3 of a certificate, its key and the CA that signs for all peers."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import msgspec

from quiesce.errors import ConfigurationError


class Tls(msgspec.Struct, frozen=True):
    """How connections are accepted and how they are dialled. Threads may share both."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext


def load_tls(cert: str, key: str, ca: str) -> Tls:
    """Read the files of --tls-cert, --tls-key and --tls-ca. Raises ConfigurationError for one that cannot be used."""
    return Tls(_context(cert, key, ca, ssl.PROTOCOL_TLS_SERVER), _context(cert, key, ca, ssl.PROTOCOL_TLS_CLIENT))


def _context(cert: str, key: str, ca: str, protocol: int) -> ssl.SSLContext:
    """TLS 1.3 both ways, the peer's certificate verified against `ca`, no session resumed; dialling checks the host."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    _load(f"--tls-ca {ca}", lambda: context.load_verify_locations(ca))
    # A password is never asked for: nobody may be there to type it.
    _load(f"--tls-cert {cert}, --tls-key {key}", lambda: context.load_cert_chain(cert, key, password=lambda: ""))
    return context


def _load(what: str, read: Callable[[], None]) -> None:
    try:
        read()
    except OSError as error:  # ssl's errors are OSErrors
        raise ConfigurationError([f"{what}: {error.strerror or error}"]) from error
