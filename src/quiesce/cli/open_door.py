"""A server that others can reach and that asks nobody for a key. A router says it, too, and needs no table for it."""

from __future__ import annotations

from quiesce.cli.port import is_loopback


def open_door_warning(host: str, has_keys: bool) -> str:
    """What to say of a server that others can reach and that asks nobody for a key, or ""."""
    if has_keys or is_loopback(host):
        return ""
    return f"--host {host} can be reached from other machines, and no key is needed: give --api-key"
