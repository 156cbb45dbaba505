"""Addresses of control connections, as settings write them."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path

import msgspec

from quiesce.errors import ConfigurationError

MAX_PATH_BYTES = 107
"""What a socket address of the kernel holds (108 with the closing zero)."""
MAX_PORT = 65535

_UNIX, _TCP = "unix:", "tcp://"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*")
_NUMBER_LAST = re.compile(r"(.*\.)?(0[xX][0-9A-Fa-f]*|[0-9]+)")
"""What resolvers take for an IP address: 127.1, 2130706433, 0x7f.0.0.1."""
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class TcpAddress(msgspec.Struct, frozen=True):
    """A port of a host, which is a name or an IP address. Port 0, when listened on, is any free one.

    Of a host that can be written in several ways there is one: names are in lower case, IPv6 addresses are short.
    `at` is the host's IP address where it is known already: then nobody looks the host up.
    """

    host: str
    port: int
    at: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether it is surely of this machine alone. No name is looked up but localhost."""
        return is_loopback(self.at or self.host)


Address = Path | TcpAddress
"""A socket file of this host, or a port of any."""


def parse_address(text: str) -> Address:
    """`"unix:/run/q/decode-0.sock"` or `"tcp://10.0.0.1:9000"`. Raises ConfigurationError for anything else."""
    if text.startswith(_TCP):
        return _parse_tcp(text)
    if not text.startswith(_UNIX):
        raise ConfigurationError(
            [f"address {text!r} is not supported: write unix:/absolute/path.sock or tcp://HOST:PORT"]
        )
    path = re.sub("^//+", "/", text.removeprefix(_UNIX))
    if problem := _path_problem(path):
        raise ConfigurationError([f"address {text!r}: {problem}"])
    return Path(path)


def show_address(address: Address | str | os.PathLike[str]) -> str:
    """The inverse of `parse_address`."""
    if isinstance(address, TcpAddress):
        host = f"[{address.host}]" if ":" in address.host else address.host
        return f"{_TCP}{host}:{address.port}"
    return f"{_UNIX}{os.fspath(address)}"


def place_of(address: Address) -> Address:
    """Equal for addresses that lead to one place, as far as that is seen without asking anybody.

    For comparing: dial the address itself, whose host is what a certificate is compared with.
    """
    if isinstance(address, TcpAddress):
        return TcpAddress("127.0.0.1" if address.host == "localhost" else address.host, address.port)
    return Path(os.path.normpath(address))


def is_loopback(host: str) -> bool:
    """Whether `host` is surely reached from this machine alone. No name is looked up but localhost."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether `host` stands for all addresses of a machine: good to listen on, and nobody can dial it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _parse_tcp(text: str) -> TcpAddress:
    host, colon, port = text.removeprefix(_TCP).rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not _is_host(bare, bracketed=bare != host):
        how = "write tcp://HOST:PORT, all four numbers of an IPv4 address, an IPv6 address in brackets"
        raise ConfigurationError([f"address {text!r}: {how}"])
    if not (port.isascii() and port.isdecimal() and int(port[:6]) <= MAX_PORT):
        raise ConfigurationError([f"address {text!r}: {port!r} is no port"])
    return TcpAddress(_canonical(bare), int(port))


def _canonical(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_host(host: str, *, bracketed: bool) -> bool:
    if bracketed or ":" in host:
        try:
            zone = ipaddress.IPv6Address(host).scope_id
            return bracketed and (zone is None or _ZONE.fullmatch(zone) is not None)
        except ValueError:
            return False
    if _NUMBER_LAST.fullmatch(host):
        return _is_ipv4(host)
    return len(host) <= 253 and _NAME.fullmatch(host) is not None


def _is_ipv4(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 4
    except ValueError:
        return False


def _path_problem(path: str) -> str:
    if not path.startswith("/") or path.endswith("/"):
        return "the path must be absolute and name a file"
    if "\0" in path:
        return "the path holds a zero byte"
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return f"the path is longer than {MAX_PATH_BYTES} bytes, which no Unix socket can have"
    return ""
