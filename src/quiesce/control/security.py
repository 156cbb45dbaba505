"""What protects control connections between hosts: mutual TLS 1.3, or the operator's word that nothing has to."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import msgspec

from quiesce.control.address import Address, TcpAddress, show_address
from quiesce.errors import ConfigurationError
from quiesce.trust.contexts import Tls, load_tls

INSECURE_WARNING = (
    "UNSAFE: --insecure: control connections are neither encrypted nor authenticated; whoever reaches their ports can "
    "read prompts and answers, and command this process"
)


class Security(msgspec.Struct, frozen=True):
    """`tls` is None where there is none; that is allowed only when `insecure`."""

    tls: Tls | None = None
    insecure: bool = False

    @property
    def accepting(self) -> ssl.SSLContext | None:
        """For the next connection that comes; None without TLS."""
        return self.tls.accepting if self.tls else None

    @property
    def dialling(self) -> ssl.SSLContext | None:
        """For the next connection that is dialled; None without TLS."""
        return self.tls.dialling if self.tls else None

    @property
    def spans_hosts(self) -> bool:
        return self.insecure or self.tls is not None


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
    return Security(load_tls(cert, key, ca))


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
