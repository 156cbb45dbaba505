"""Who has announced itself to this router: what decides, without a socket or a clock."""

from __future__ import annotations

import msgspec

from quiesce.control.address import Address, TcpAddress, is_wildcard, parse_address, show_address
from quiesce.control.connection import Identity
from quiesce.control.workers_file import MOST_WORKERS
from quiesce.errors import ConfigurationError
from quiesce.protocol.dispatch import DISPATCH_VERSION
from quiesce.protocol.registration import Register


class Entry(msgspec.Struct, eq=False):
    """A worker that is registered. `key` is its identity's; `lost`: its connection ended, and it did not leave."""

    said: Register
    address: Address
    key: str
    lost: bool = False


class Roster:
    """Entries by name. A name belongs to one worker while that lives."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.entries: dict[str, Entry] = {}

    def why_not(self, said: Register, identity: Identity, *, local: bool) -> str:
        """Why a worker must not be registered, in words, or ""."""
        if said.version != DISPATCH_VERSION:
            return f"version differs: the router speaks {DISPATCH_VERSION} of its frames, {said.worker} {said.version}"
        if said.model != self._model:
            return f"model differs: the router has {self._model}, {said.worker} serves {said.model}"
        if not identity.may_be(said.role, said.worker):
            return f"its certificate is for {', '.join(identity.grants)}, not for {said.role}/{said.worker}"
        if problem := _misplaced(said.address, local=local):
            return problem
        return self._taken(said, identity)

    def _taken(self, said: Register, identity: Identity) -> str:
        known = self.entries.get(said.worker)
        if known is not None and not known.lost and not _is_same(known, said, identity):
            return f"a worker {said.worker} is registered already, at {show_address(known.address)}"
        address = parse_address(said.address)
        for name, entry in self.entries.items():
            if entry.address == address and name != said.worker and not entry.lost:
                return f"{said.address} is the address of {name}"
        full = known is None and len(self.entries) >= MOST_WORKERS
        return f"{MOST_WORKERS} workers are registered, and no more are allowed" if full else ""

    def enter(self, said: Register, identity: Identity) -> Entry:
        """Whoever `why_not` says nothing against. A lost one whose address it has is over."""
        entry = Entry(said, parse_address(said.address), identity.key)
        self.entries = {name: each for name, each in self.entries.items() if each.address != entry.address}
        self.entries[said.worker] = entry
        return entry

    def has(self, entry: Entry) -> bool:
        """Whether it is the newest one of that worker."""
        return self.entries.get(entry.said.worker) is entry

    def forget(self, entry: Entry) -> None:
        if self.has(entry):
            del self.entries[entry.said.worker]


def _is_same(known: Entry, said: Register, identity: Identity) -> bool:
    """The same life, over a new connection: its earlier one is broken, and nobody has noticed yet."""
    return known.said.incarnation == said.incarnation and known.key == identity.key


def _misplaced(text: str, *, local: bool) -> str:
    try:
        address = parse_address(text)
    except ConfigurationError as error:
        return str(error)
    if not isinstance(address, TcpAddress):
        return "" if local else f"{text} cannot be dialled from another host"
    if address.port == 0 or is_wildcard(address.host):
        return f"{text} is for listening: nobody can be dialled there"
    return ""
