"""What moves pages between workers: each lands page by page, or late, or after its failure, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quiesce.ids import Attempt, AttemptKey, Incarnation, Peer, RequestId
from quiesce.lab.swarm import fates
from quiesce.lab.swarm.ground import Ground, Tale
from quiesce.lab.swarm.memory import Memory
from quiesce.protocol.sender_io import Outcome

if TYPE_CHECKING:
    from quiesce.lab.swarm.prefill import PrefillRank


class Flight:
    """One write or read under way. `stops_at` is how many of its pages land, and the one at `skips` does not.

    `sources` are pages of `sender`, a prefill rank, that hold `texts` at first; `places` are those of `memory`. Its
    machine calls it `number`. `reported` when whoever launched it was told an outcome, `shut` when a fence keeps it
    out.
    """

    __slots__ = (
        *("at", "attempt", "first_page", "key", "me", "memory", "number", "outcome", "places", "reported", "request"),
        *("sender", "settled", "shut", "skips", "slice", "sources", "stops_at", "tag", "tale", "texts"),
    )

    def __init__(self, sender: PrefillRank, key: AttemptKey, tag: int, memory: Memory, tale: Tale) -> None:
        self.sender, self.key, self.tag, self.memory, self.tale = sender, key, tag, memory, tale
        self.me: Peer = sender.me
        self.slice = sender.me.rank
        self.attempt = memory.base + key.attempt
        self.number = self.first_page = 0
        self.request = RequestId("")
        self.places: list[int] = []
        self.sources: list[int] = []
        self.texts: list[int] = []
        self.at = self.stops_at = 0
        self.skips = -1
        self.outcome = Outcome.LANDED
        self.reported = self.shut = False

    def moves(
        self, sources: list[int], places: list[int], texts: list[int], settled: Callable[[Any, Outcome], None]
    ) -> None:
        """Which pages, from where to where; and who is told in the end."""
        self.settled = settled
        self.sources, self.places, self.texts = sources, places, texts
        self.stops_at = len(places)

    @property
    def reads(self) -> bool:
        """Its source may still be read, and what is read may still land somewhere."""
        raise NotImplementedError  # pragma: no cover

    def name(self) -> str:
        """Which one it is, in words."""
        raise NotImplementedError  # pragma: no cover


F = TypeVar("F", bound=Flight)


class Air(Generic[F]):
    """All flights of a cluster. What is `shut` was fenced: nothing of it lands any more."""

    moved = ""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._page_s = ground.p.page_s
        self._flights: dict[tuple[Incarnation, Attempt], list[F]] = {}

    # ------------------------------------------------------------ what others ask

    def to(self, life: Incarnation, attempt: Attempt) -> list[F]:
        """Flights that may still land in an attempt's lease."""
        return [each for each in self._flights.get((life, attempt), ()) if not (each.shut or each.memory.over)]

    def of(self, me: Peer, key: AttemptKey) -> int:
        flights = self._flights.get((key.decode.incarnation, key.attempt), ())
        return sum(each.me == me and each.key == key and not (each.shut or each.memory.over) for each in flights)

    def reading(self, sender: PrefillRank, request: str, keys: tuple[AttemptKey, ...]) -> int:
        """How many flights may still read the source of a request."""
        return sum(
            each.sender is sender and each.request == request and each.reads
            for key in {(each.decode.incarnation, each.attempt): None for each in keys}
            for each in self._flights.get(key, ())
        )

    def everything(self) -> Iterator[F]:
        for flights in self._flights.values():
            yield from flights

    @property
    def empty(self) -> bool:
        return not self._flights

    # ------------------------------------------------------------ beginning

    def _begin(self, flight: F, index: int, decode_index: int) -> None:
        """What becomes of it follows from which one it is."""
        key = flight.key
        self._flights.setdefault((key.decode.incarnation, key.attempt), []).append(flight)
        which = (flight.tale.ask, flight.tale.turn, index, flight.slice, decode_index, key.decode.rank)
        begins_s = self._doom(flight, (*which, flight.first_page))
        self._ground.loop.after(begins_s + self._page_s, None, self._land, flight)

    def _doom(self, flight: F, fate: fates.Key) -> float:
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
            return self._late(flight, fate, late_s)
        elif chance.strikes(fates.SLOW, fate, flight.name):
            return self._late(flight, fate, p.slowest_write_s * chance.unit(fates.SPREAD, fate) ** 2)
        elif n_pages and chance.strikes(fates.TORN, fate, flight.name):
            flight.skips = int(n_pages * chance.unit(fates.SPREAD, fate))
        return 0.0

    def _late(self, flight: F, fate: fates.Key, late_s: float) -> float:
        """It lands so much later than others."""
        return late_s

    # ------------------------------------------------------------ landing

    def _land(self, flight: F) -> None:
        """One page lands: by far the most frequent thing that happens."""
        at, memory = flight.at, flight.memory
        if self._is_gone(flight) or at >= flight.stops_at:
            self._end(flight)
            return
        if memory.heir is not None:
            flight.memory = memory = memory.heir
        place = flight.places[at]
        if memory.writers[place] != flight.attempt or memory.readers[place]:
            self._check(flight, place)
        label = flight.texts[at]
        if flight.sender.memory.cells[0][flight.sources[at]][1] != label:
            label = self._carried(flight)
        if at != flight.skips:
            memory.cells[flight.slice][place] = (flight.tag, label)
        flight.at = at = at + 1
        if at < flight.stops_at:
            self._ground.loop.after(self._page_s, None, self._land, flight)
        else:
            self._end(flight)

    def _is_gone(self, flight: F) -> bool:
        """Not another page of it lands."""
        raise NotImplementedError  # pragma: no cover

    def _carried(self, flight: F) -> int:
        """The text that lands with the page that is next, whose source holds another by now."""
        raise NotImplementedError  # pragma: no cover

    def _check(self, flight: F, place: int) -> None:
        """Memory is fresh in every life: what lands in an earlier one hits nothing."""
        memory = flight.memory
        if not memory.gone:
            where, owner = f"page {place} of {memory.where}", memory.writers[place]
            readers, about = memory.readers[place], flight.tale.ask
            self._ground.checks.no_wild_write.landed(flight.attempt, owner, readers, where, about)

    def _read(self, flight: F, memory: Memory) -> int:
        """What lies in a source page that is read now should be what lay there at first."""
        page = flight.sources[flight.at]
        label, where = memory.cells[0][page][1], f"page {page} of {flight.sender.name}"
        self._ground.checks.no_wild_read.read(label, flight.texts[flight.at], where, flight.tale.ask)
        return label

    # ------------------------------------------------------------ ends

    def _end(self, flight: F) -> None:
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

    def _mark(self, flight: F) -> None:
        marks, moved = self._ground.marks, self.moved
        if flight.at and flight.at == len(flight.places):
            if flight.reported:
                marks.hit(f"failed {moved} lands")
            if flight.sender.life.dead:
                marks.hit(f"{moved} lands after prefill's death")
            if flight.memory.is_held(flight.key.attempt):
                marks.hit(f"late {moved} lands in held pages")
        if flight.outcome is Outcome.FAILED_QUIESCED:
            marks.hit(f"{moved} fails for good")

    def _report(self, flight: F) -> None:
        """Whoever launched it learns an outcome, if it still lives."""
        raise NotImplementedError  # pragma: no cover


AnyAir = Air[Any]
"""Writes or reads."""
