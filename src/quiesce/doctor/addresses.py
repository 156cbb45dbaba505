"""Addresses: who can reach them."""

from __future__ import annotations

import ipaddress


def listening_host(address: str) -> str:
    """The host of `tcp://HOST:PORT`; "" for a socket file, and where all addresses of a host are listened on."""
    scheme, _, place = address.partition("://")
    host = place.rpartition(":")[0].strip("[]") if scheme == "tcp" else ""
    return "" if host in ("0.0.0.0", "::") else host  # noqa: S104 - looked for, not listened on


def is_local(host: str) -> bool:
    """Whether an address is surely reached from its own machine alone. No name is looked up but localhost."""
    bare = host.strip("[]")
    try:
        return bare == "localhost" or bare.startswith("unix:") or ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
