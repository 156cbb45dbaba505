"""What a world in which decode reads is in the words of the proof's pull model; see `translation`.

A prompt is a request here: whoever of two with the same prompt is bound, their context is the same. A page is one
rank's part of it, for each prefill rank fills its own. What of an attempt was said stays true, also when it is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from proof.pull.state import PullState
from proof.structures import Structure

from quiesce.ids import Attempt, AttemptKey, Digest, Incarnation, Peer
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.lives import life, number_of
from quiesce.lab.explorer.prefill_side import PrefillSide, holder_of
from quiesce.lab.explorer.reads import Fetch
from quiesce.lab.explorer.world import World
from quiesce.protocol import receiver_rules, sender_rules
from quiesce.protocol.attempt import Phase
from quiesce.protocol.attempt import PullState as Pulled
from quiesce.protocol.invariants import pages_of
from quiesce.protocol.messages import AbortAck, Committed, Envelope, Fenced
from quiesce.protocol.record import Record

SAID = {AbortAck: "said_ack", Committed: "said_committed", Fenced: "said_fenced"}
JUNK = Digest("something else")
NOW = ("committed", "current", "over", "taken_back", "reading", "flying", "source_holds", "page_holds")
"""Relations that are what the state says, and remember nothing."""


@dataclass
class PullTranslation:
    """`see` every state of a path, in order, with the step that led there."""

    config: Config
    relations: dict[str, set[tuple[Any, ...]]] = field(default_factory=lambda: {n: set() for n in PullState.declared()})
    leases: dict[AttemptKey, tuple[int, ...]] = field(default_factory=dict)
    wanted: dict[AttemptKey, Digest] = field(default_factory=dict)
    sides: dict[Peer, PrefillSide] = field(default_factory=dict)
    lent: dict[tuple[Peer, AttemptKey], tuple[Any, ...]] = field(default_factory=dict)
    reads: dict[Any, tuple[Any, Any]] = field(default_factory=dict)  # to (target page, source page)
    reported: set[Any] = field(default_factory=set)
    decodes: set[Incarnation] = field(default_factory=set)
    before: World | None = None

    def see(self, label: Any, world: World) -> Structure:
        for name in NOW:
            self.relations[name] = set()
        self._see_decode(world)
        self._see_messages(world)
        self._see_prefill(world)
        self._see_reads(label, world)
        self._see_memory(world)
        self.before = world
        return self.structure()

    def _note(self, relation: str, points: Iterable[tuple[Any, ...]]) -> None:
        self.relations[relation].update(points)

    # ------------------------------------------------------------ decode

    def _see_decode(self, world: World) -> None:
        incarnation, attempts = world.receiver.incarnation, world.receiver.attempts
        self.decodes.add(incarnation)
        self.relations["decode_dead"] = {(each,) for each in self.decodes if each != incarnation}
        for attempt in attempts.values():
            self._see_attempt(incarnation, attempt)
        if self.before is not None and self.before.receiver.incarnation == incarnation:
            for number, attempt in self.before.receiver.attempts.items():
                if number not in attempts:
                    self._see_end(incarnation, attempt)

    def _keys(self, incarnation: Any, attempt: Pulled) -> list[AttemptKey]:
        return [AttemptKey(Peer(rank, incarnation), attempt.attempt) for rank in range(len(attempt.leases))]

    def _see_attempt(self, incarnation: Any, attempt: Pulled) -> None:
        keys = self._keys(incarnation, attempt)
        for rank, key in enumerate(keys):
            self.leases[key], self.wanted[key] = pages_of(attempt.leases[rank]), attempt.digest
        every = [(key,) for key in keys]
        self._note("minted", every)
        self._note("poisoned", [(keys[each.decode_rank],) for each in attempt.poisoned])
        self._note("released", [(keys[rank],) for rank in attempt.released])
        self._note("held", every if receiver_rules.is_held(attempt) else [])
        self._note("committed", every if attempt.phase is Phase.COMMITTED else [])
        self._note("stopped", [] if receiver_rules.is_under_way(attempt) else every)

    def _see_end(self, incarnation: Any, attempt: Pulled) -> None:
        """It is forgotten: every lease was released, and it was held unless it had been committed."""
        every = [(key,) for key in self._keys(incarnation, attempt)]
        self._note("released", every)
        self._note("stopped", every)
        self._note("held", every if attempt.phase is not Phase.COMMITTED else [])

    def _see_messages(self, world: World) -> None:
        """What is said of an attempt that is over already is an answer, and says nothing new."""
        known = world if self.before is None else self.before
        for each in world.net:
            is_news = each.sender.incarnation == known.receiver.incarnation and each.attempt in known.receiver.attempts
            self._see_open(each)
            if type(each.body) in SAID and is_news:
                self._note(SAID[type(each.body)], [(AttemptKey(each.sender, each.attempt),)])

    def _see_open(self, said: Envelope) -> None:
        told, life_ = said.open_attempts, said.sender.incarnation
        closed = [
            key for key in self.leases if told and key.decode.incarnation == life_ and told.is_closed(key.attempt)
        ]
        self._note("said_closed", [(key,) for key in closed])

    # ------------------------------------------------------------ prefill

    def _see_prefill(self, world: World) -> None:
        self.sides |= {side.me: side for side in world.prefills}
        self._note("current", [(side.me.rank, side.me.incarnation) for side in world.prefills])
        self.relations["over"] = {(me.rank, me.incarnation) for me in self.sides} - self.relations["current"]
        for me, side in self.sides.items():
            for key, record in side.machine.records.items():
                if sender_rules.is_lent(record):
                    self.lent[me, key] = self._sources_of(side, record)
        for me, key in self.lent:
            there = (me.rank, me.incarnation, key)
            now = self.sides[me].machine.records.get(key)
            self._note("offered", [there])
            self._note("taken_back", [] if now is not None and sender_rules.is_lent(now) else [there])
        self._note("revoked", [(lender.rank, lender.incarnation, key) for lender, key in world.air.shut])

    def _sources_of(self, side: PrefillSide, record: Record) -> tuple[Any, ...]:
        return tuple(self._source(side.me, record.request, page) for page in pages_of(record.lent))

    def _source(self, me: Peer, request: Any, page: int) -> Any:
        """A page of a pool, or, where they are not counted, what a request has."""
        return (me, page) if self.config.sources else (me, request)

    def _content(self, source: Any) -> Digest:
        side = self.sides[source[0]]
        owner = holder_of(side, source[1]) if self.config.sources else source[1]
        held = owner in side.machine.requests
        return next((each.digest for each in self.config.requests if held and each.id == owner), JUNK)

    # ------------------------------------------------------------ reads and memory

    def _see_reads(self, label: Any, world: World) -> None:
        parts = {read: fetch for fetch in world.air.flights for read in self._parts(fetch)}
        self._note("launched", [(each,) for each in parts])
        self._note("flying", [(each,) for each in parts])
        self._note("reading", [(each,) for each, fetch in parts.items() if not fetch.carries])
        self._note("carries", [(each, fetch.carries) for each, fetch in parts.items() if fetch.carries])
        self._note("outstanding", self.relations["launched"])
        self.relations["outstanding"] -= {(each,) for each in self.reads if self._is_reported(each, world)}
        if label[0] == "land":
            self._note("placed", [(each,) for each in self._parts(label[1])])

    def _is_reported(self, read: Any, world: World) -> bool:
        """Nothing is reported to a life that is over, so there it counts for ever."""
        _, key, number, _ = read
        if key.decode.incarnation != world.receiver.incarnation:
            return read in self.reported
        attempt = world.receiver.attempts.get(key.attempt)
        if attempt is None or number not in attempt.outstanding:
            self.reported.add(read)
        return read in self.reported

    def _parts(self, fetch: Fetch) -> list[Any]:
        """A read of several pages is several reads."""
        found = []
        for at, (source, page) in enumerate(zip(fetch.sources, fetch.pages, strict=True)):
            flight = fetch.flight
            read = (flight.sender, flight.key, flight.write, at)
            target = (flight.key.decode.incarnation, flight.key.decode.rank, page, flight.sender.rank)
            self.reads[read] = (target, self._read_from(fetch, at, source))
            found.append(read)
        return found

    def _read_from(self, fetch: Fetch, at: int, source: int) -> Any:
        """What the window lent: of two requests with one prompt, which was bound is not said by who asked."""
        flight = fetch.flight
        lent = self.lent.get((flight.sender, flight.key))
        return self._source(flight.sender, flight.request, source) if lent is None else lent[fetch.first + at]

    def _see_memory(self, world: World) -> None:
        incarnation = world.receiver.incarnation
        for (rank, page, k), content in world.memory.items():
            number, attempt = divmod(content.tag, 100)
            key = AttemptKey(Peer(rank, life("d", 0, number)), Attempt(attempt))
            self._note("page_holds", [((incarnation, rank, page, k), key, content.digest)])
        self.relations["source_holds"] = {(source, self._content(source)) for source in self._sources()}

    # ------------------------------------------------------------ all of it

    def _sources(self) -> set[Any]:
        lent = {source for sources in self.lent.values() for source in sources}
        return lent | {source for _, source in self.reads.values()}

    def structure(self) -> Structure:
        config = self.config
        pages = [
            (each, rank, page, k)
            for each in sorted(self.decodes, key=number_of)
            for rank in range(config.ranks)
            for page in range(config.pages)
            for k in range(config.prefills)
        ]
        elements: dict[str, Any] = {
            "Rank": range(config.prefills),
            "Life": sorted({me.incarnation for me in self.sides}),
            "DecodeLife": sorted(self.decodes),
            "Lease": sorted(self.leases),
            "Page": pages,
            "Source": sorted(self._sources()),
            "Read": sorted(self.reads),
            "Request": [*sorted({each.digest for each in config.requests}), JUNK],
        }
        fixed: dict[str, set[tuple[Any, ...]]] = {
            "in_lease": {(page, key) for page in pages for key in self.leases if self._is_in(page, key)},
            "lends": {(me.rank, me.incarnation, key, each) for (me, key), all_ in self.lent.items() for each in all_},
        }
        relations = {name: frozenset(points) for name, points in {**self.relations, **fixed}.items()}
        return Structure(elements, self._functions(elements), relations)

    def _is_in(self, page: Any, key: AttemptKey) -> bool:
        incarnation, rank, number, _ = page
        return key.decode == Peer(rank, incarnation) and number in self.leases[key]

    def _functions(self, elements: Any) -> dict[str, dict[tuple[Any, ...], Any]]:
        return {
            "life_of": {(key,): key.decode.incarnation for key in self.leases},
            "wanted": {(key,): self.wanted[key] for key in self.leases},
            "memory_of": {(page,): page[0] for page in elements["Page"]},
            "source_memory_of": {(source,): source[0].incarnation for source in elements["Source"]},
            "lender": {(read,): read[0].rank for read in self.reads},
            "lender_life": {(read,): read[0].incarnation for read in self.reads},
            "reader": {(read,): read[1] for read in self.reads},
            "target_page": {(read,): target for read, (target, _) in self.reads.items()},
            "source_page": {(read,): source for read, (_, source) in self.reads.items()},
        }
