"""What protects control connections between hosts: mutual TLS 1.3, or the operator's word that nothing has to."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable

import msgspec

from quiesce.control.address import Address, TcpAddress, show_address
from quiesce.errors import ConfigurationError

INSECURE_WARNING = (
    "UNSAFE: --insecure: control connections are neither encrypted nor authenticated; whoever reaches their ports can "
    "read prompts and answers, and command this process"
)


class Security(msgspec.Struct, frozen=True):
    """`accepting` and `dialling` are None where there is no TLS; that is allowed only when `insecure`."""

    accepting: ssl.SSLContext | None = None
    dialling: ssl.SSLContext | None = None
    insecure: bool = False

    @property
    def spans_hosts(self) -> bool:
        return self.insecure or self.accepting is not None


LOCAL = Security()
"""Unix sockets only."""


def load_security(cert: str | None, key: str | None, ca: str | None, *, insecure: bool = False) -> Security:
    """Read the files of --tls-cert, --tls-key and --tls-ca. Raises ConfigurationError with every problem."""
    files = {"--tls-cert": cert, "--tls-key": key, "--tls-ca": ca}
    missing = [flag for flag, file in files.items() if not file]
    if len(missing) == len(files):
        return Security(insecure=insecure)
    problems = [f"{flag} is needed as well: TLS between hosts is mutual" for flag in missing]
    if insecure:
        problems.append("--insecure and --tls-cert, --tls-key, --tls-ca contradict each other")
    if problems or not (cert and key and ca):
        raise ConfigurationError(problems)
    return Security(_context(cert, key, ca, ssl.PROTOCOL_TLS_SERVER), _context(cert, key, ca, ssl.PROTOCOL_TLS_CLIENT))


def require_security(addresses: Iterable[Address], security: Security) -> None:
    """Raise ConfigurationError for a TCP address that nothing protects."""
    remote = [show_address(address) for address in addresses if isinstance(address, TcpAddress)]
    if remote:
        require_spanning(", ".join(remote), security)


def require_spanning(what: str, security: Security) -> None:
    """Raise ConfigurationError when nothing protects `what`, which means TCP."""
    if not security.spans_hosts:
        problem = (
            f"{what}: control over TCP needs TLS: give --tls-cert, --tls-key and --tls-ca "
            "(`quiesce certs DIR` makes some for a trial), or say --insecure on a network where all are trusted"
        )
        raise ConfigurationError([problem])


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
