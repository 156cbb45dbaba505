"""Addresses: who can reach them."""

from __future__ import annotations

import ipaddress


def is_local(host: str) -> bool:
    """Whether an address is surely reached from its own machine alone. No name is looked up but localhost."""
    bare = host.strip("[]")
    try:
        return bare == "localhost" or bare.startswith("unix:") or ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
