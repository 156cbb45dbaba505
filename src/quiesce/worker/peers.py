"""Which prefill workers a decode worker pairs with, as settings and --workers-file name them."""

from __future__ import annotations

from pathlib import Path

from quiesce.control.address import Address, parse_address
from quiesce.control.plain_text import why_no_name
from quiesce.control.whereabouts import Places
from quiesce.control.workers_file import NamedWorkers, read_workers
from quiesce.errors import ConfigurationError
from quiesce.worker.settings import WorkerSettings


def peers_of(settings: WorkerSettings, workers: NamedWorkers | None = None) -> dict[str, Address]:
    """Addresses by name; `workers` is what the file says, if it has been read. Raises ConfigurationError."""
    named = parse_peers(settings.peer)
    if settings.workers_file is None or settings.role != "decode":
        return named
    listed = (workers or read_workers(Path(settings.workers_file))).prefill
    if twice := named.keys() & listed.keys():
        raise ConfigurationError([f"{', '.join(sorted(twice))}: named by --peer and by --workers-file"])
    return named | listed


def places_of(named: dict[str, Address]) -> Places:
    return {address: name for name, address in named.items()}


def parse_peers(peers: tuple[str, ...]) -> dict[str, Address]:
    """`("prefill-0=unix:/run/p.sock", ...)` to addresses by name. Raises ConfigurationError."""
    named: dict[str, Address] = {}
    for peer in peers:
        name, equals, address = peer.partition("=")
        if not equals or name in named:
            raise ConfigurationError([f"--peer {peer!r} must be NAME=ADDRESS (unix: or tcp:), each name once"])
        if problem := why_no_name(name):
            raise ConfigurationError([f"--peer {peer!r}: {problem}"])
        where = parse_address(address)
        if where in named.values():
            raise ConfigurationError([f"--peer {peer!r} names an address that another --peer names already"])
        named[name] = where
    return named
