"""The port a server will listen on, checked before anything is started."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
from pathlib import Path

from quiesce.errors import ConfigurationError
from quiesce.router.listening import MAX_PORT

_TRIES = 32
_LOWEST = 12_000
_KERNELS_OWN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(host: str, port: int, flags: str = "--host {host} --port {port}", taken: str = "") -> int:
    """`port` if it can be bound at `host`, a free one for 0.

    That one is none of those that the kernel gives to whoever connects: until it is listened on it would be anybody's.
    Raises `ConfigurationError`, which blames `flags` and, where somebody else listens there, says `taken`.
    """
    for _ in range(0 if port else _TRIES):
        try:
            return free_port(host, _LOWEST + secrets.randbelow(_first_of_the_kernel() - _LOWEST))
        except (ConfigurationError, ValueError):  # taken, or the kernel gives all of them
            continue
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except UnicodeError:
        raise ConfigurationError([f"{flags.format(host=host, port=port)}: that is no host's name"]) from None
    except OSError as problem:
        why = f"{problem.strerror or problem}{taken if problem.errno == errno.EADDRINUSE else ''}"
        raise ConfigurationError([f"{flags.format(host=host, port=port)}: {why}"]) from None


def _first_of_the_kernel() -> int:
    try:
        return int(_KERNELS_OWN.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768  # Linux's default


def free_ports(host: str, first: int, count: int, own: int | None = None) -> int:
    """`first` if it and the next ones can all be bound, for 0 one of which that holds. `own` is the router's.

    Raises `ConfigurationError`.
    """
    flags = f"--fronts {first} --front-host {{host}}: port {{port}}"
    for _ in range(_TRIES if first == 0 else 1):
        found = free_port(host, 0) if first == 0 else first
        ports = range(found, found + count)
        try:
            _check_last(ports[-1])
            if own in ports:
                raise ConfigurationError([f"--fronts {first}: port {own} is --port's; choose a range without it"])
            for port in ports:
                free_port(host, port, flags)
        except ConfigurationError:
            if first:
                raise
        else:
            return found
    raise ConfigurationError([f"--fronts 0: there are no {count} free ports beside each other at {host}"])


def _check_last(port: int) -> None:
    if port > MAX_PORT:
        raise ConfigurationError([f"--fronts: there is no port {port}; begin lower"])


def reachable(host: str) -> str:
    """Where this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 (compared, not bound)


def url(host: str, port: int) -> str:
    """For people: `http://127.0.0.1:8000`."""
    name = reachable(host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host or None, None, flags=socket.AI_PASSIVE)}
        return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)
    except (OSError, ValueError):
        return False
