"""What a world of the real machines is in the words of the proof.

`quiesce.lab.explorer` drives the shipping machines. The proof's relations remember more than a world does (what was
ever said, granted, launched), so a `Translation` follows one path and notes it. What a world has no notion of stays
empty: the prefix tree, torn writes, plain stores, and the reports of `settled` writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from proof.push.state import PushState
from proof.structures import Structure

from quiesce.ids import Attempt, AttemptKey, Peer
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.moves import is_from_decode
from quiesce.lab.explorer.world import World
from quiesce.protocol import receiver_rules, sender_rules
from quiesce.protocol.attempt import AttemptState, Phase
from quiesce.protocol.invariants import Flight, pages_of
from quiesce.protocol.messages import (
    Abort,
    AbortAck,
    Bound,
    Committed,
    Done,
    Envelope,
    Fenced,
)
from quiesce.protocol.receiver_rules import HELD
from quiesce.protocol.record import NO_REQUEST, Record, RecordPhase, SenderState

SAID = {
    Bound: "said_bound",
    Done: "said_done",
    Committed: "said_committed",
    Abort: "said_abort",
    AbortAck: "said_ack",
    Fenced: "said_fenced",
}
JUNK = "something else"
There = tuple[int, str, AttemptKey]


@dataclass
class Translation:
    """`see` every state of a path, in order, with the step that led there."""

    config: Config
    relations: dict[str, set[tuple[Any, ...]]] = field(default_factory=lambda: {n: set() for n in PushState.declared()})
    leases: dict[AttemptKey, tuple[int, ...]] = field(default_factory=dict)
    rooms: dict[AttemptKey, Any] = field(default_factory=dict)
    wanted: dict[AttemptKey, str] = field(default_factory=dict)
    grants: dict[AttemptKey, tuple[Peer, ...]] = field(default_factory=dict)
    senders: dict[Peer, SenderState] = field(default_factory=dict)
    decodes: set[str] = field(default_factory=set)
    before: World | None = None

    def see(self, label: Any, world: World) -> Structure:
        self._see_decode(label, world)
        self._see_messages(world)
        self._see_prefill(label, world)
        self._see_writes(label, world)
        self._see_memory(world)
        self.before = world
        return self.structure()

    # ------------------------------------------------------------ decode

    def _see_decode(self, label: Any, world: World) -> None:
        life, attempts = world.receiver.incarnation, world.receiver.attempts
        self.decodes.add(life)
        self.relations["decode_dead"] = {(each,) for each in self.decodes if each != life}
        self.relations["committed"] = set()
        for attempt in attempts.values():
            self._see_attempt(life, attempt)
        self._see_proof(label)
        if self.before is not None and self.before.receiver.incarnation == life:
            for number, attempt in self.before.receiver.attempts.items():
                if number not in attempts:
                    self._see_end(life, attempt)

    def _see_attempt(self, life: Any, attempt: AttemptState) -> None:
        self._note("minted", [((life, attempt.attempt),)])
        keys = [AttemptKey(Peer(rank, life), attempt.attempt) for rank in range(len(attempt.leases))]
        for rank, key in enumerate(keys):
            self.leases[key] = pages_of(attempt.leases[rank])
            self.rooms[key], self.wanted[key], self.grants[key] = attempt.room, attempt.request, attempt.grants
            self._note("granted", [(peer.rank, peer.incarnation, key) for peer in attempt.grants])
        for name, these in (("acked", attempt.acked), ("fenced", attempt.fenced), ("done", attempt.done)):
            self._note(name, [(each.peer.rank, each.peer.incarnation, keys[each.decode_rank]) for each in these])
        self._note("heard_bound", [(d.peer.rank, d.peer.incarnation, keys[d.decode_rank]) for d in attempt.bound])
        self._note("held", [(key,) for key in keys if attempt.phase in HELD])
        self._note("quarantined", [(key,) for key in keys if attempt.phase is Phase.QUARANTINED])
        self._note("committed", [(key,) for key in keys if attempt.phase is Phase.COMMITTED])
        self._note("released", [(keys[rank],) for rank in attempt.released])

    def _see_proof(self, label: Any) -> None:
        """The last proof of an attempt is not in the state any more: the attempt is forgotten in the same step."""
        if self.before is None:
            return
        known = self.before.receiver
        if label[0] in ("deliver", "deliver, copy stays") and isinstance(label[1].body, AbortAck | Done):
            self._see_answer(known, label[1])
        elif label[0] == "fence":
            attempt = known.attempts.get(label[1])
            for each in receiver_rules.unproved(attempt) if attempt else ():
                key = AttemptKey(Peer(each.decode_rank, known.incarnation), label[1])
                self._note("fenced", [(each.peer.rank, each.peer.incarnation, key)] if each.peer == label[2] else [])

    def _see_answer(self, known: Any, said: Envelope) -> None:
        attempt = known.attempts.get(said.attempt)
        if attempt is None or said.to.incarnation != known.incarnation or said.sender not in attempt.grants:
            return
        there = (said.sender.rank, said.sender.incarnation, AttemptKey(said.to, said.attempt))
        if isinstance(said.body, Done):
            self._note("done", [there] if receiver_rules.tells_own_content(attempt, said.body) else [])
        elif isinstance(said.body, AbortAck) and receiver_rules.may_count_ack(attempt, said.body):
            self._note("acked", [there])

    def _see_end(self, life: Any, attempt: AttemptState) -> None:
        """It is forgotten: every lease was released, and it was held unless it had been committed."""
        keys = [AttemptKey(Peer(rank, life), attempt.attempt) for rank in range(len(attempt.leases))]
        self._note("released", [(key,) for key in keys])
        self._note("held", [(key,) for key in keys if attempt.phase is not Phase.COMMITTED])

    # ------------------------------------------------------------ messages

    def _see_messages(self, world: World) -> None:
        for each in world.net:
            if is_from_decode(each):
                there = (each.to.rank, each.to.incarnation, AttemptKey(each.sender, each.attempt))
                self._see_open(each)
            else:
                there = (each.sender.rank, each.sender.incarnation, AttemptKey(each.to, each.attempt))
            if type(each.body) in SAID:
                self._note(SAID[type(each.body)], [there])

    def _see_open(self, said: Envelope) -> None:
        life = said.sender.incarnation
        told = said.open_attempts
        minted = [number for (of, number), *_ in self.relations["minted"] if of == life]
        self._note("said_closed", [((life, each),) for each in minted if told is not None and told.is_closed(each)])

    # ------------------------------------------------------------ prefill

    def _see_prefill(self, label: Any, world: World) -> None:
        self.senders |= {state.me: state for state in world.senders}
        self.relations["current"] = {(state.me.rank, state.me.incarnation) for state in world.senders}
        lives = {(me.rank, me.incarnation) for me in self.senders}
        self.relations["over"] = lives - self.relations["current"]
        for name in ("bound", "bound_to", "stopped", "poisoned", "tombstone", "closed", "buried", "outstanding"):
            self.relations[name] = set()
        for me, state in self.senders.items():
            self._note("buried", [(me.rank, me.incarnation, each) for each in state.dead])
            closed = [key for key in self.leases if sender_rules.is_closed(state, key)]
            self._note("closed", [(me.rank, me.incarnation, key) for key in closed])
            for key, record in state.records.items():
                self._see_record(me, (me.rank, me.incarnation, key), record)

    def _see_record(self, me: Peer, there: There, record: Record) -> None:
        is_bound = record.request != NO_REQUEST
        has_ended = record.phase is not RecordPhase.ANNOUNCED and not sender_rules.is_active(record)
        self._note("bound", [there] if is_bound else [])
        self._note("bound_to", [(*there, record.request)] if is_bound else [])
        self._note("stopped", [there] if has_ended else [])
        self._note("poisoned", [there] if record.poisoned else [])
        self._note("tombstone", [there] if record.abort_heard else [])
        self._note("heard_fenced", [there] if record.fenced else [])
        counted = record.outstanding
        self._note("outstanding", [(w,) for w in self._writes() if w[0].sender == me and w[0].write in counted])

    # ------------------------------------------------------------ writes and memory

    def _see_writes(self, label: Any, world: World) -> None:
        flown = {(each.flight, page): (each.flight, each.state) for each in world.flights for page in each.pages}
        news = {(_as_launched(flight), page) for flight, page in flown}
        self._note("dequeued", [(each,) for each in news])
        self._note("launched", [(each,) for each in news])
        for write in news:
            counted = self.senders[write[0].sender].records.get(write[0].key)
            is_counted = counted is not None and write[0].write in counted.outstanding
            self._note("outstanding", [(write,)] if is_counted else [])
        in_air = [(flight, page) for (flight, page), (_, state) in flown.items() if state != "shut"]
        self.relations["flying"] = {((_as_launched(flight), page),) for flight, page in in_air}
        self.relations["reading"] = {((_as_launched(f), page),) for f, page in in_air if f.reading}
        self._note("carries", [((_as_launched(f), page), f.request) for f, page in in_air if not f.reading])
        self._note("source_fenced", [((_as_launched(f), page),) for f, page in flown if not f.reading])
        if label[0] == "land":
            landed = {each for each in self._writes() if each[0] == _as_launched(label[1])}
            self._note("placed", [(each,) for each in landed if label[2] != "shut"])
            self._note("carries", [(each, each[0].request) for each in landed if label[2] != "shut"])

    def _see_memory(self, world: World) -> None:
        life = world.receiver.incarnation
        self.relations["slice_holds"] = set()
        self.relations["tag"] = set()
        for (decode_rank, page, rank), content in world.memory.items():
            place = (life, decode_rank, page)
            owner = next(each.id for each in self.config.requests if each.digest == content.digest)
            number = Attempt(content.tag - world.decode_life * 100)
            self._note("slice_holds", [(rank, place, owner)])
            self._note("tag", [(rank, place, AttemptKey(Peer(decode_rank, life), number))])
        self.relations["source_holds"] = {
            (source, source[1] if source[1] in self.senders[source[0]].requests else JUNK) for source in self._sources()
        }

    # ------------------------------------------------------------ all of it

    def _note(self, relation: str, points: Iterable[tuple[Any, ...]]) -> None:
        self.relations[relation].update(points)

    def _writes(self) -> list[Any]:
        return [each for (each,) in self.relations["launched"]]

    def _sources(self) -> list[tuple[Peer, Any]]:
        return [(me, each.id) for me in self.senders for each in self.config.requests]

    def _pages(self) -> list[tuple[Any, int, int]]:
        config = self.config
        return [(life, r, p) for life in sorted(self.decodes) for r in range(config.ranks) for p in range(config.pages)]

    def structure(self) -> Structure:
        elements = {
            "Rank": range(self.config.prefills),
            "Life": sorted({me.incarnation for me in self.senders}),
            "DecodeLife": sorted(self.decodes),
            "Attempt": sorted({(key.decode.incarnation, key.attempt) for key in self.leases}),
            "Lease": sorted(self.leases),
            "Page": self._pages(),
            "Source": self._sources(),
            "Write": self._writes(),
            "Room": sorted({each.room for each in self.config.requests}),
            "Request": [*(each.id for each in self.config.requests), JUNK],
            "Digest": sorted({each.digest for each in self.config.requests} | {JUNK}),
        }
        fixed = self._fixed_relations(elements)
        relations = {name: frozenset(points) for name, points in {**self.relations, **fixed}.items()}
        return Structure(elements, self._functions(elements), relations)

    def _fixed_relations(self, elements: Any) -> dict[str, set[tuple[Any, ...]]]:
        attempts = elements["Attempt"]
        return {
            "in_lease": {
                ((k.decode.incarnation, k.decode.rank, page), k) for k, pages in self.leases.items() for page in pages
            },
            "fills": {(peer.rank, key) for key, grants in self.grants.items() for peer in grants},
            "before": {(a, b) for a in attempts for b in attempts if a[0] == b[0] and a[1] < b[1]},
            "plain_stores": set(),
        }

    def _functions(self, elements: Any) -> dict[str, dict[tuple[Any, ...], Any]]:
        requests = self.config.requests
        first = {(k.decode.incarnation, k.attempt): k for k in self.leases}
        return {
            "attempt_of": {(k,): (k.decode.incarnation, k.attempt) for k in self.leases},
            "life_of": {(a,): a[0] for a in first},
            "room_of": {(a,): self.rooms[k] for a, k in first.items()},
            "wanted": {(a,): self.wanted[k] for a, k in first.items()},
            "prefill_room": {(each.id,): each.room for each in requests} | {(JUNK,): requests[0].room},
            "digest": {(each.id,): each.digest for each in requests} | {(JUNK,): JUNK},
            "memory_of": {(page,): page[0] for page in elements["Page"]},
            "source_memory_of": {(source,): source[0].incarnation for source in elements["Source"]},
            **_of_writes(elements["Write"]),
        }


def _as_launched(flight: Flight) -> Flight:
    """A write is the same write after its sender's endpoint was closed under it."""
    return Flight(flight.sender, flight.key, flight.write, flight.request)


def _of_writes(writes: Iterable[tuple[Flight, int]]) -> dict[str, dict[tuple[Any, ...], Any]]:
    return {
        "writer": {(w,): w[0].sender.rank for w in writes},
        "writer_life": {(w,): w[0].sender.incarnation for w in writes},
        "target": {(w,): w[0].key for w in writes},
        "target_page": {(w,): (w[0].key.decode.incarnation, w[0].key.decode.rank, w[1]) for w in writes},
        "source_page": {(w,): (w[0].sender, w[0].request) for w in writes},
        "payload": {(w,): w[0].request for w in writes},
    }
