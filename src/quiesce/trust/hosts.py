"""For which hosts a certificate is."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

_KINDS = ("DNS", "IP Address")


def hosts_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names and IP addresses of a certificate as `getpeercert` gives it; () when it has none."""
    names = (certificate or {}).get("subjectAltName", ())
    return tuple(_address(str(name)) or str(name).lower() for kind, name in names if kind in _KINDS)


def is_for(hosts: Sequence[str], host: str) -> bool:
    """Whether whoever dials `host` would take a certificate for these: the same address, the same name, or `*.` in the
    place of its first label."""
    host = _address(host) or host.lower()
    _, _, rest = host.partition(".")
    return host in hosts or bool(rest and not _address(host) and f"*.{rest}" in hosts)


def _address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip()))
    except ValueError:
        return ""
