"""Launched writes: they land page by page, or late, or after their failure or their writer's death, or never."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quiesce.ids import Attempt, AttemptKey, Incarnation, Peer
from quiesce.lab.swarm import fates
from quiesce.lab.swarm.ground import Ground, Tale
from quiesce.lab.swarm.memory import Memory
from quiesce.protocol.sender_io import Launch, Outcome

if TYPE_CHECKING:
    from quiesce.lab.swarm.prefill import PrefillRank


class Flight:
    """One write under way. `stops_at` is how many of its pages land, and the one at `skips` does not.

    `reported` when its writer was told an outcome.
    """

    __slots__ = (
        *("at", "attempt", "key", "launch", "me", "memory", "outcome", "places", "reported", "sender", "shut", "skips"),
        *("slice", "sources", "stops_at", "tag", "tale", "texts"),
    )

    def __init__(
        self, sender: PrefillRank, launch: Launch, memory: Memory, places: list[int], sources: list[int], tale: Tale
    ) -> None:
        self.sender = sender
        self.launch = launch
        self.me: Peer = sender.me
        self.key: AttemptKey = launch.key
        self.attempt, self.tag = memory.base + launch.key.attempt, int(launch.lease.tag)
        self.memory = memory
        self.places = places
        self.sources = sources
        self.slice = sender.me.rank
        self.texts = [sender.memory.cells[0][page][1] for page in sources]
        self.tale = tale
        self.at = 0
        self.stops_at = len(places)
        self.skips = -1
        self.outcome = Outcome.LANDED
        self.reported = False
        self.shut = False

    @property
    def reads(self) -> bool:
        """Its source may still be read, and what is read may still land somewhere."""
        return not (self.shut or self.sender.life.dead)

    def name(self) -> str:
        first, n = self.launch.first_page, len(self.places)
        return f"write {self.tale.name} pages {first}+{n} from {self.sender.name} to {self.memory.where}"


class Wire:
    """All flights of a cluster. What is `shut` was fenced at the receiver: nothing of it lands any more."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._page_s, self._stores = ground.p.page_s, ground.p.transport == "stores"
        self._flights: dict[tuple[Incarnation, Attempt], list[Flight]] = {}
        self._shut: set[tuple[Incarnation, Attempt, Peer]] = set()

    # ------------------------------------------------------------ what others ask

    def to(self, life: Incarnation, attempt: Attempt) -> list[Flight]:
        """Flights that may still land in an attempt's lease."""
        return [each for each in self._flights.get((life, attempt), ()) if not each.shut]

    def of(self, me: Peer, key: AttemptKey) -> int:
        flights = self._flights.get((key.decode.incarnation, key.attempt), ())
        return sum(each.me == me and each.key == key and not each.shut for each in flights)

    def reading(self, sender: PrefillRank, request: str, keys: tuple[AttemptKey, ...]) -> int:
        """How many flights may still read the source of a request."""
        return sum(
            each.sender is sender and each.launch.request == request and each.reads
            for key in {(each.decode.incarnation, each.attempt): None for each in keys}
            for each in self._flights.get(key, ())
        )

    def everything(self) -> Iterator[Flight]:
        for flights in self._flights.values():
            yield from flights

    @property
    def empty(self) -> bool:
        return not self._flights

    # ------------------------------------------------------------ launching and landing

    def launch(self, flight: Flight, index: int, decode_index: int) -> None:
        """Begin a write; what becomes of it follows from which one it is."""
        ground, p = self._ground, self._ground.p
        key = flight.key
        self._flights.setdefault((key.decode.incarnation, key.attempt), []).append(flight)
        flight.shut = (key.decode.incarnation, key.attempt, flight.me) in self._shut
        which = (flight.tale.ask, flight.tale.turn, index, flight.slice, decode_index, key.decode.rank)
        fate = (*which, flight.launch.first_page)
        begins_s = self._doom(flight, fate)
        ground.loop.after(begins_s + p.page_s, None, self._land, flight)

    def _doom(self, flight: Flight, fate: fates.Key) -> float:
        """Decide its end; how long until its first page lands."""
        chance, p = self._ground.fates, self._ground.p
        n_pages = len(flight.places)
        if chance.strikes(fates.QUIESCED, fate, flight.name):
            flight.outcome = Outcome.FAILED_QUIESCED
            flight.stops_at = int(n_pages * chance.unit(fates.SPREAD, fate))
        elif chance.strikes(fates.UNKNOWN, fate, flight.name):
            flight.outcome = Outcome.FAILED_IN_FLIGHT
            flight.stops_at = int(n_pages * chance.unit(fates.SPREAD, fate))
        elif chance.strikes(fates.UNKNOWN_LANDS, fate, flight.name):
            flight.outcome = Outcome.FAILED_IN_FLIGHT
            late_s = p.slowest_write_s * chance.unit(fates.SPREAD, fate) ** 2
            self._ground.loop.after(late_s / 8, None, self._report, flight)
            return late_s
        elif chance.strikes(fates.SLOW, fate, flight.name):
            return p.slowest_write_s * chance.unit(fates.SPREAD, fate) ** 2
        elif n_pages and chance.strikes(fates.TORN, fate, flight.name):
            flight.skips = int(n_pages * chance.unit(fates.SPREAD, fate))
        return 0.0

    def _land(self, flight: Flight) -> None:
        """One page lands: by far the most frequent thing that happens."""
        at, sender, memory = flight.at, flight.sender, flight.memory
        if self._is_gone(flight) or at >= flight.stops_at:
            self._end(flight)
            return
        if memory.heir is not None:
            flight.memory = memory = memory.heir
        place, label = flight.places[at], flight.texts[at]
        if memory.writers[place] != flight.attempt or memory.readers[place]:
            self._check(flight, place)
        if not sender.life.dead:
            label = sender.memory.cells[0][flight.sources[at]][1]
            if label != flight.texts[at]:
                where = f"page {flight.sources[at]} of {sender.name}"
                self._ground.checks.no_wild_read.read(label, flight.texts[at], where, flight.tale.ask)
        if at != flight.skips:
            memory.cells[flight.slice][place] = (flight.tag, label)
        flight.at = at = at + 1
        if at < flight.stops_at:
            self._ground.loop.after(self._page_s, None, self._land, flight)
        else:
            self._end(flight)

    def _check(self, flight: Flight, place: int) -> None:
        """Memory is fresh in every life: a write for an earlier one hits nothing."""
        memory = flight.memory
        if not memory.gone:
            where, owner = f"page {place} of {memory.where}", memory.writers[place]
            readers, about = memory.readers[place], flight.tale.ask
            self._ground.checks.no_wild_write.landed(flight.attempt, owner, readers, where, about)

    def _is_gone(self, flight: Flight) -> bool:
        """Fenced, or a store of a processor that has stopped: not another byte of it lands."""
        if flight.shut:
            self._ground.marks.hit("fence keeps a write out")
            flight.outcome = Outcome.FAILED_IN_FLIGHT
            return True
        return flight.sender.life.dead and self._stores

    def _end(self, flight: Flight) -> None:
        key = (flight.key.decode.incarnation, flight.key.attempt)
        flights = self._flights[key]
        flights.remove(flight)
        if not flights:
            del self._flights[key]
        self._ground.checks.no_wild_write.looked += flight.at
        self._ground.checks.no_wild_read.looked += flight.at
        self._mark(flight)
        if not flight.reported:
            self._ground.loop.after(self._ground.p.message_s, None, self._report, flight)

    def _mark(self, flight: Flight) -> None:
        marks = self._ground.marks
        if flight.at and flight.at == len(flight.places):
            if flight.reported:
                marks.hit("failed write lands")
            if flight.sender.life.dead:
                marks.hit("write lands after its writer's death")
            if flight.memory.is_held(flight.key.attempt):
                marks.hit("late write lands in held pages")
        if flight.outcome is Outcome.FAILED_QUIESCED:
            marks.hit("write fails for good")

    def _report(self, flight: Flight) -> None:
        """The writer learns an outcome, if it still lives."""
        flight.reported = True
        sender = flight.sender
        if not sender.life.dead:
            self._ground.loop.after(0.0, sender.life, sender.settled, flight.launch, flight.outcome)

    # ------------------------------------------------------------ ends

    def shut(self, life: Incarnation, attempt: Attempt, peer: Peer) -> None:
        """A fence at the receiver: nothing of this peer lands in this attempt's lease, ever."""
        self._shut.add((life, attempt, peer))
        for flight in self._flights.get((life, attempt), ()):
            if flight.me == peer:
                flight.shut = True

    def stop_stores(self, sender: PrefillRank) -> None:
        """A process is dead, and with it all its plain stores."""
        for flight in list(self.everything()):
            if flight.sender is sender:
                flight.shut = flight.reported = True
