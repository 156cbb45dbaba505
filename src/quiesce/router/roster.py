"""Who has announced itself to this router: what decides, without a socket or a clock."""

from __future__ import annotations

import itertools

import msgspec

from quiesce.control.address import Address, TcpAddress, is_wildcard, parse_address, place_of, show_address
from quiesce.control.connection import Identity
from quiesce.control.hello_codec import decode_greeting
from quiesce.control.plain_text import is_plain, shown, why_no_name
from quiesce.control.workers_file import MOST_WORKERS
from quiesce.errors import ConfigurationError
from quiesce.protocol.dispatch import DISPATCH_VERSION
from quiesce.protocol.hello import Hello, unpairable
from quiesce.protocol.registration import Register
from quiesce.router.matching import Matching, Pair
from quiesce.router.objections import MOST_KEPT


class Entry(msgspec.Struct, eq=False):
    """A worker that is registered. `key` is its identity's; `lost`: its connection ended, and it did not leave.

    `proved`: it answered under this name where it says that it is dialled.
    """

    said: Register
    address: Address
    place: Address
    key: str
    lost: bool = False
    proved: bool = False


class Roster:
    """Entries by name. A name belongs to one worker while that lives; an address to the one that answered there."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.entries: dict[str, Entry] = {}
        self.matching = Matching()

    def why_not(self, said: Register, identity: Identity, *, local: bool) -> str:
        """Why a worker must not be registered, in words, or ""."""
        if problem := _unshowable(said):
            return problem
        if said.version != DISPATCH_VERSION:
            return f"version differs: the router speaks {DISPATCH_VERSION} of its frames, {said.worker} {said.version}"
        if said.model != self._model:
            return f"model differs: the router has {self._model}, {said.worker} serves {said.model}"
        if not identity.may_be(said.role, said.worker):
            return f"its certificate is for {', '.join(identity.grants)}, not for {said.role}/{said.worker}"
        if problem := _misplaced(said, identity, local=local) or _ill_greeted(said):
            return problem
        return self._taken(said, identity)

    def _taken(self, said: Register, identity: Identity) -> str:
        known = self.entries.get(said.worker)
        if known is not None and not known.lost and not _is_same(known, said, identity):
            return f"a worker {said.worker} is registered already, at {show_address(known.address)}"
        for entry in self.at(parse_address(said.address)):
            if entry.proved and not entry.lost and entry.said.worker != said.worker:
                return f"{said.address} is the address of {entry.said.worker}"
        full = known is None and len(self.entries) >= MOST_WORKERS
        return f"{MOST_WORKERS} workers are registered, and no more are allowed" if full else ""

    def enter(self, said: Register, identity: Identity) -> Entry:
        """Whoever `why_not` says nothing against."""
        hello = decode_greeting(said.hello) if said.hello else None
        address = parse_address(said.address)
        entry = Entry(said, address, place_of(address), identity.key)
        self.entries[said.worker] = entry
        self.matching.enter(said.worker, said.role, hello)
        return entry

    def at(self, address: Address) -> list[Entry]:
        """Who says that it is dialled there: at most one of them is, and it shows who when it is dialled."""
        place = place_of(address)
        return [entry for entry in self.entries.values() if entry.place == place]

    def unfit(self, most: int = MOST_KEPT) -> dict[Pair, str]:
        """(decode, prefill): why the two will not pair, as far as what they say of themselves shows; of `most`."""
        return dict(itertools.islice(self.matching.pairs(), most))

    def lose(self, entry: Entry) -> None:
        """Its connection ended; it may be back, and keeps its place meanwhile."""
        entry.lost = True
        if self.has(entry):
            self.matching.leave(entry.said.worker)

    def has(self, entry: Entry) -> bool:
        """Whether it is the newest one of that worker."""
        return self.entries.get(entry.said.worker) is entry

    def forget(self, entry: Entry) -> None:
        if self.has(entry):
            del self.entries[entry.said.worker]
            self.matching.leave(entry.said.worker)


def _is_same(known: Entry, said: Register, identity: Identity) -> bool:
    """The same life, over a new connection: its earlier one is broken, and nobody has noticed yet."""
    return known.said.incarnation == said.incarnation and known.key == identity.key


def _unshowable(said: Register) -> str:
    """Why what a worker says of itself cannot stand in logs and on terminals, or "". What it said is shown escaped."""
    for what, text in (("name", said.worker), ("model's name", said.model)):
        if problem := why_no_name(text):
            return f"its {what}: {problem}"
    if not is_plain(said.address):
        return f"its address {shown(said.address)} has characters that cannot be printed"
    hello = decode_greeting(said.hello) if said.hello else None
    words = hello and [text for text in msgspec.structs.astuple(hello) if isinstance(text, str)]
    return "" if all(map(is_plain, words or ())) else "its HELLO has characters that cannot be printed"


def _ill_greeted(said: Register) -> str:
    """Why what a worker says in HELLO keeps it from being used, or ""."""
    hello = decode_greeting(said.hello) if said.hello else None
    if not isinstance(hello, Hello):
        return ""
    if (hello.role, hello.worker, hello.incarnation) != (said.role, said.worker, said.incarnation):
        return f"its HELLO is of {hello.role} {hello.worker}, another worker or another life"
    return unpairable(hello)


def _misplaced(said: Register, identity: Identity, *, local: bool) -> str:
    text = said.address
    try:
        address = parse_address(text)
    except ConfigurationError as error:
        return str(error)
    if not isinstance(address, TcpAddress):
        return "" if local else f"{text} cannot be dialled from another host"
    if address.port == 0 or is_wildcard(address.host):
        return f"{text} is for listening: nobody can be dialled there"
    if "%" in address.host:
        return f"{text} has a zone, which means something on one host alone"
    if not identity.may_be_at(address.host):
        return (
            f"its certificate is for {', '.join(identity.hosts)}, not for {address.host}, where it says it is dialled"
        )
    return ""
