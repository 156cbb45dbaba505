"""Mutual TLS 1.3 of a certificate, its key and the CA that signs for all peers, read again when the files change."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from quiesce.errors import ConfigurationError
from quiesce.trust.lifetimes import Lifetime, lifetimes_of, warnings_of
from quiesce.trust.wording import in_words

_log = logging.getLogger(__name__)

Stamps = tuple[tuple[int, ...], ...]
_told: dict[tuple[str, str, str], tuple[Stamps, str]] = {}
_telling = threading.Lock()


class Tls(Protocol):
    """How connections are accepted and how they are dialled; ask anew for each. Threads may share it."""

    @property
    def accepting(self) -> ssl.SSLContext: ...

    @property
    def dialling(self) -> ssl.SSLContext: ...

    @property
    def lifetimes(self) -> tuple[Lifetime, ...]: ...


class Contexts(msgspec.Struct, frozen=True):
    """A `Tls` that stays as it is."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    lifetimes: tuple[Lifetime, ...] = ()


class FileTls:
    """A `Tls` of the files of --tls-cert, --tls-key and --tls-ca, as they are when a connection begins.

    Files that cannot be used change nothing, and the log says so once: they may be half replaced. Connections that
    stand keep what they began with. Raises ConfigurationError when they cannot be used from the first.
    """

    def __init__(self, cert: str, key: str, ca: str) -> None:
        self._files = cert, key, ca
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._contexts = _load_contexts(*self._files)

    @property
    def accepting(self) -> ssl.SSLContext:
        return self._current().accepting

    @property
    def dialling(self) -> ssl.SSLContext:
        return self._current().dialling

    @property
    def lifetimes(self) -> tuple[Lifetime, ...]:
        """Of what a connection would begin with now."""
        return self._current().lifetimes

    def _current(self) -> Contexts:
        with self._lock:
            stamps = self._look()  # before reading: what changes meanwhile is read again
            if stamps != self._stamps:
                self._stamps = stamps
                self._read_again()
            return self._contexts

    def _read_again(self) -> None:
        try:
            self._contexts = _load_contexts(*self._files)
        except ConfigurationError as error:
            self._tell(logging.WARNING, f"cannot be used, those from before stay in use: {error}")
        else:
            said = [*warnings_of(self._contexts.lifetimes, time.time())]
            now = "; ".join(["new connections use {}, {} and {}".format(*self._files), *said])
            self._tell(logging.WARNING if said else logging.INFO, now)

    def _tell(self, level: int, what: str) -> None:
        """Once for a process: control and pages each read the files."""
        with _telling:
            if _told.get(self._files) == (self._stamps, what):
                return
            _told[self._files] = self._stamps, what
        _log.log(level, "certificates have changed: %s", what)

    def _look(self) -> Stamps:
        """What differs once a file was replaced or written; () for one that is not there."""
        return tuple(_stamp(file) for file in self._files)


def load_tls(cert: str, key: str, ca: str) -> Tls:
    """The files of --tls-cert, --tls-key and --tls-ca. Raises ConfigurationError for one that cannot be used."""
    return FileTls(cert, key, ca)


def _stamp(file: str) -> tuple[int, ...]:
    try:
        seen = Path(file).stat()
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _load_contexts(cert: str, key: str, ca: str) -> Contexts:
    accepting, dialling = (_context(cert, key, ca, side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    return Contexts(accepting, dialling, lifetimes_of(cert, ca))


def _context(cert: str, key: str, ca: str, protocol: int) -> ssl.SSLContext:
    """TLS 1.3 both ways, the peer's certificate verified against `ca`, no session resumed; dialling checks the host."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    _load(f"--tls-ca {ca}", lambda: context.load_verify_locations(ca))
    # The two are read as one, and then no error says which of them is not there.
    _load(f"--tls-cert {cert}", Path(cert).read_bytes)
    _load(f"--tls-key {key}", Path(key).read_bytes)
    # A password is never asked for: nobody may be there to type it.
    _load(f"--tls-cert {cert}, --tls-key {key}", lambda: context.load_cert_chain(cert, key, password=lambda: ""))
    return context


def _load(what: str, read: Callable[[], object]) -> None:
    try:
        read()
    except OSError as error:  # ssl's errors are OSErrors
        raise ConfigurationError([f"{what}: {in_words(error)}"]) from error
