"""Which worlds are the same world: states that differ in names alone are explored once.

Three kinds of names mean nothing to the machines, and a state stands for all states that differ only in them:

* *Numbers of writes*, and of reads. A machine looks a number up in `outstanding` and never compares two; the next one
  is only new.
* *The order of `bound`.* Machines go through it; what they do in which order shows in the order of effects alone, and
  messages, writes and clocks of a world have no order.
* *Numbers of ranks*, of prefill (where the same requests arrive) and of decode: every rank is treated as every other.
  Lists that machines sort by rank are sorted again.

If s and t differ in such names only, every move of s has a move of t to a state that differs in such names only, and
invariants do not look at names: so whatever can go wrong after s can go wrong after t. That the machines are so is not
taken on trust: a test compares the successors of states with those of their images, and the verdicts of worlds and
mutants with and without this page.

What looks like a symmetry and is none: *pages* (the allocator takes the lowest free run, so which page is free
matters), *requests* (of two that fit, the lower id is bound), *attempts* (they are compared with watermarks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from quiesce.ids import Incarnation, Peer
from quiesce.lab.explorer.between import Air
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.decode_side import DecodeSide
from quiesce.lab.explorer.lives import is_decode, life, number_of
from quiesce.lab.explorer.prefill_side import PrefillSide
from quiesce.lab.explorer.reads import Reads
from quiesce.lab.explorer.world import Key, World
from quiesce.protocol.attempt import Destination, Handoff, PullState
from quiesce.protocol.invariants import Cached
from quiesce.protocol.sender_io import DecodeReplaced

Numbers = tuple[tuple[int, int], ...]


# ---------------------------------------------------------------- numbers of writes, order of bound


def normal(world: World) -> Key:
    """The key of the world with writes numbered by what they are and `bound` in order."""
    if world.config.pull:
        return _normal_pull(world)
    air, numbers = world.do(numbered, world.air)
    told = dict(numbers)
    prefills = tuple([world.do(renumbered, side, told.get(side.me, ())) for side in world.prefills])
    return (world.decode, prefills, world.wires, air, world.budget)


def _normal_pull(world: World) -> Key:
    """The same for reads, which decode numbers."""
    air, numbers = world.do(numbered_reads, world.air)
    mine = dict(numbers).get(world.decode.machine.incarnation, ())
    prefills = tuple([world.do(renumbered, side, ()) for side in world.prefills])
    return (world.do(renumbered_reads, world.decode, mine), prefills, world.wires, air, world.budget)


def numbered_reads(config: Config, air: Reads) -> tuple[Reads, tuple[tuple[Incarnation, Numbers], ...]]:
    """The same reads with other numbers, and for each decode life (old, new) of each."""
    numbers: dict[Incarnation, list[tuple[int, int]]] = {}
    flights = set()
    for each in sorted(air.flights, key=lambda fetch: fetch.order):
        mine = numbers.setdefault(each.flight.key.decode.incarnation, [])
        mine.append((each.flight.write, len(mine) + 1))
        flights.add(replace(each, flight=replace(each.flight, write=len(mine))))
    return replace(air, flights=frozenset(flights)), tuple((life, tuple(each)) for life, each in numbers.items())


def renumbered_reads(config: Config, side: DecodeSide, numbers: Numbers) -> DecodeSide:
    new, machine = dict(numbers), side.machine
    attempts = {
        number: replace(
            attempt, outstanding=Map({new.get(read, -read): there for read, there in attempt.outstanding.items()})
        )
        for number, attempt in machine.attempts.items()
        if attempt.outstanding
    }
    machine = replace(machine, next_read=len(new) + 1, attempts=machine.attempts.update(attempts))
    return replace(side, machine=machine)


def numbered(config: Config, air: Air) -> tuple[Air, tuple[tuple[Peer, Numbers], ...]]:
    """The same writes with other numbers, and for each writer (old, new) of each."""
    numbers: dict[Peer, list[tuple[int, int]]] = {}
    flights = set()
    for each in sorted(air.flights, key=lambda flown: flown.order):
        mine = numbers.setdefault(each.flight.sender, [])
        mine.append((each.flight.write, len(mine) + 1))
        flights.add(replace(each, flight=replace(each.flight, write=len(mine))))
    return Air(frozenset(flights), air.shut), tuple((peer, tuple(each)) for peer, each in numbers.items())


def renumbered(config: Config, side: PrefillSide, numbers: Numbers) -> PrefillSide:
    new, machine = dict(numbers), side.machine
    records = {
        key: replace(record, outstanding=frozenset(new.get(write, -write) for write in record.outstanding))
        for key, record in machine.records.items()
        if record.outstanding
    }
    requests = {
        name: replace(request, bound=tuple(sorted(request.bound)))
        for name, request in machine.requests.items()
        if len(request.bound) > 1
    }
    machine = replace(
        machine,
        next_write=len(new) + 1,
        records=machine.records.update(records),
        requests=machine.requests.update(requests),
    )
    return replace(side, machine=machine)


# ---------------------------------------------------------------- numbers of ranks


def renamings(config: Config) -> tuple[Renaming, ...]:
    """Every renaming of ranks that leaves the first state as it is, but for the one that changes nothing."""
    arrivals = None if config.arrivals is None else set(config.arrivals)
    found = [
        Renaming(prefills, decodes)
        for prefills in permutations(range(config.prefills))
        for decodes in permutations(range(config.ranks))
        if arrivals is None or {(prefills[k], req) for k, req in arrivals} == arrivals
    ]
    return tuple(found[1:])


def images(world: World, renamings: Iterable[Renaming]) -> Iterator[Key]:
    """The normal keys of the world under each renaming."""
    return (normal(each.image(world)) for each in renamings)


class Renaming:
    """`prefills[k]` is the new number of prefill rank `k`, `decodes[d]` of decode rank `d`."""

    def __init__(self, prefills: tuple[int, ...], decodes: tuple[int, ...]) -> None:
        self._prefills = prefills
        self._decodes = decodes
        self._known: dict[Any, Any] = {}

    def image(self, world: World) -> World:
        prefills = [self.of(side) for side in world.prefills]
        return world.but(
            decode=self.of(world.decode),
            prefills=tuple(sorted(prefills, key=lambda side: side.me.rank)),
            wires=self.of(world.wires),
            air=self.of(world.air),
        )

    def of(self, value: Any) -> Any:
        """The same with other numbers of ranks, wherever they are in it."""
        match value:
            case msgspec.Struct():
                found = self._known.get(value)
                if found is None:
                    found = self._known[value] = self._struct(value)
                return found
            case frozenset():
                return frozenset(map(self.of, value))
            case Map():
                return Map((self.of(key), self.of(each)) for key, each in value.items())
            case tuple():
                return tuple(map(self.of, value))
            case _:
                return value

    def _struct(self, value: Any) -> Any:
        match value:
            case Peer():
                return self._peer(value)
            case DecodeReplaced():  # it names a life by one of its ranks
                return value
            case DecodeSide():
                return self._side(self._fields(value))
            case Handoff():
                return self._attempt(self._fields(value))
            case Destination() | Cached():
                return replace(self._fields(value), decode_rank=self._decodes[value.decode_rank])
            case _:
                return self._fields(value)

    def _fields(self, value: Any) -> Any:
        """Most fields hold no rank; a struct in which none does is itself."""
        old = [getattr(value, name) for name in value.__struct_fields__]
        new = [self.of(each) for each in old]
        return type(value)(*new) if new != old else value

    def _peer(self, peer: Peer) -> Peer:
        if is_decode(peer):
            return Peer(self._decodes[peer.rank], peer.incarnation)
        if peer.rank >= len(self._prefills):
            return peer
        new = self._prefills[peer.rank]
        return Peer(new, life("e", new, number_of(peer.incarnation)))

    def _side(self, side: DecodeSide) -> DecodeSide:
        to, k = self._decodes, self._prefills
        return replace(
            side,
            pools=_moved(side.pools, to),
            known=_moved(side.known, k),
            own=Map(((number, to[rank]), pages) for (number, rank), pages in side.own.items()),
            memory=Map(((to[rank], page, k[by]), content) for (rank, page, by), content in side.memory.items()),
            staging=Map(((n, to[rank], at, k[by]), content) for (n, rank, at, by), content in side.staging.items()),
        )

    def _attempt(self, attempt: Handoff) -> Handoff:
        if isinstance(attempt, PullState):
            attempt = replace(attempt, quiet=frozenset(self._decodes[rank] for rank in attempt.quiet))
        return replace(
            attempt,
            leases=_moved(attempt.leases, self._decodes),
            grants=tuple(sorted(attempt.grants)),
            released=frozenset(self._decodes[rank] for rank in attempt.released),
        )


def _moved(by_rank: tuple[Any, ...], to: tuple[int, ...]) -> tuple[Any, ...]:
    """What stood at `d` stands at `to[d]`."""
    return tuple(by_rank[to.index(new)] for new in range(len(by_rank)))
