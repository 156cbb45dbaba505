"""Decode's half of a world: the shipping receiver machine, the reference allocator, memory, and an executor."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NamedTuple

import msgspec
from immutables import Map
from msgspec.structs import replace

from quiesce.errors import InvariantBroken
from quiesce.ids import Attempt, Digest, Incarnation, PageTag, Peer, RequestId, Room
from quiesce.kv import reference
from quiesce.kv.reference import ReferencePages
from quiesce.kv.states import PageState
from quiesce.lab.explorer.config import Config, Req
from quiesce.lab.explorer.lives import life, number_of
from quiesce.protocol import puller, receiver
from quiesce.protocol.attempt import AnyState
from quiesce.protocol.invariants import Cached, Content, pages_of
from quiesce.protocol.messages import Envelope, Failure, Fault, Lease
from quiesce.protocol.puller_io import CloseEndpoint, LaunchRead
from quiesce.protocol.receiver_io import (
    Attach,
    Cache,
    FenceProved,
    Finished,
    Hold,
    Quarantine,
    Release,
    RequestFailed,
    Reserve,
    Send,
    StartTimer,
    StopTimers,
    Timer,
    TimerFired,
    TryFence,
    Verified,
    Verify,
)

NONE: frozenset[Any] = frozenset()
NOT_COVERED = Failure("coverage", "A page does not bear the tag.", Fault.PREFILL)
TORN = Digest("?" * 32)
"""Bytes of two writes in one page: nobody's context."""

Place = tuple[int, int, int]
"""(decode rank, page, prefill rank): each prefill rank fills its own part of a page."""


class DecodeSide(msgspec.Struct, frozen=True, cache_hash=True):
    """Everything on decode's side that can matter to what happens next.

    `known` are the prefill lives that PUBLISH goes to. `own` are the pages of each (attempt, rank) that are leased and
    that no tree took over. `told`: whose owner heard of the failure, of attempts that are not over. `staging` is memory
    private to an attempt, where writes land when landing is staged: (attempt, rank, place in the lease, prefill rank).
    """

    machine: AnyState
    pools: tuple[ReferencePages, ...]
    known: tuple[Peer, ...]
    waiting: frozenset[Req]
    own: Map[tuple[Attempt, int], tuple[int, ...]] = Map()
    memory: Map[Place, Content] = Map()
    staging: Map[tuple[Attempt, int, int, int], Content] = Map()
    cached: frozenset[tuple[Cached, int]] = NONE  # and which page of its prompt it is
    reading: frozenset[tuple[Attempt, Cached]] = NONE
    told: frozenset[Attempt] = NONE
    asked: frozenset[tuple[Attempt, Peer]] = NONE
    clocks: frozenset[tuple[Attempt, Timer]] = NONE
    notices: frozenset[Any] = NONE

    @property
    def number(self) -> int:
        """Which life it is."""
        return number_of(self.machine.incarnation)


class DecodeStep(NamedTuple):
    """What came of a step: the side after it, what it sends, whose owners heard of a failure, what is wrong.

    In pull also which reads it launches, each with the request that it is for.
    """

    side: DecodeSide
    sends: tuple[Envelope, ...] = ()
    failed: tuple[Attempt, ...] = ()
    wrong: str = ""
    reads: tuple[tuple[LaunchRead, RequestId], ...] = ()


def start(config: Config, number: int, known: tuple[Peer, ...], waiting: frozenset[Req]) -> DecodeSide:
    """A life begins: a fresh machine and fresh pools; the tag of an attempt is the same in every rank's pool."""
    me = life("d", 0, number)
    machine = _machine(config, me)
    pools = tuple(reference.fresh(config.pages, PageTag(number * 100 + 1)) for _ in range(config.ranks))
    return DecodeSide(machine, pools, known, waiting)


def _machine(config: Config, me: Incarnation) -> AnyState:
    if not config.pull:
        return receiver.start(me, config.ranks, unsafe_release_on_timeout=config.unsafe)
    size = {"window": config.window, "batch_pages": config.batch}
    return puller.start(me, config.ranks, unsafe_release_on_timeout=config.unsafe, **size)


# ---------------------------------------------------------------- what happens to it


def feed(config: Config, side: DecodeSide, fact: Any) -> DecodeStep:
    """The machine hears `fact`, and its effects are carried out in order."""
    turn = _Turn(config, side)
    try:
        turn.run(fact)
    except InvariantBroken as broken:
        turn.wrong = broken.message.removeprefix("invariant ").replace(" is broken", "", 1)
    live = frozenset(turn.side.machine.attempts)
    side = turn.changed(told=turn.side.told & live)
    return DecodeStep(side, tuple(turn.sends), tuple(turn.failed), turn.wrong, tuple(turn.reads))


def lacking(config: Config, side: DecodeSide, req: Req) -> int:
    """How many pages of its prompt no rank has in its tree: what every lease must have."""
    known = (
        {at for each, at in side.cached if each.decode_rank == rank and each.content.digest == req.digest}
        for rank in range(config.ranks)
    )
    return config.lease_pages - min(map(len, known))


def may_submit(config: Config, side: DecodeSide, req: Req) -> bool:
    needed = lacking(config, side, req)
    return all(len(reference.free_pages(pool)) >= needed for pool in side.pools)


def submit(config: Config, side: DecodeSide, req: Req) -> DecodeStep:
    """Pages come from the allocator, as many of each rank as the prompt lacks; the machine mints an attempt."""
    whole, needed = config.lease_pages, lacking(config, side, req)
    number, held = side.machine.next_attempt, whole - needed
    taken = [reference.allocate(pool, needed, req.name, PageState.RESERVED) for pool in side.pools]
    leases = tuple(_lease(pool.next_tag - 1, pages) for pool, pages in taken)
    shared = {(number, each) for each, at in side.cached if each.content.digest == req.digest and at < held}
    side = replace(
        side,
        pools=tuple(pool for pool, _ in taken),
        waiting=side.waiting - {req},
        own=side.own.update({(number, rank): pages for rank, (_, pages) in enumerate(taken)}),
        reading=side.reading | shared,
    )
    return feed(config, side, Reserve(req.id, Room(req.room), req.digest, leases, side.known, whole, held))


def _lease(tag: int, pages: tuple[int, ...]) -> Lease:
    return Lease(PageTag(tag), len(pages), b"".join(struct.pack("<II", page, 1) for page in pages), 0)


def finish(config: Config, side: DecodeSide, number: Attempt) -> DecodeStep:
    return feed(config, _left(side, number), Finished(number))


def notice(config: Config, side: DecodeSide, fact: Any) -> DecodeStep:
    return feed(config, replace(side, notices=side.notices - {fact}), fact)


def fire(config: Config, side: DecodeSide, clock: tuple[Attempt, Timer]) -> DecodeStep:
    return feed(config, replace(side, clocks=side.clocks - {clock}), TimerFired(*clock))


def fence(config: Config, side: DecodeSide, number: Attempt, peer: Peer) -> DecodeStep:
    return feed(config, replace(side, asked=side.asked - {(number, peer)}), FenceProved(peer, number))


def nothing_asked(side: DecodeSide) -> DecodeSide:
    """Whatever asked for a fence has it."""
    return replace(side, asked=NONE)


def evict(config: Config, side: DecodeSide, entry: tuple[Cached, int]) -> DecodeStep:
    cached, _ = entry
    pools = _with_pool(side, cached.decode_rank, reference.release, frozenset({cached.page}))
    return DecodeStep(replace(side, cached=side.cached - {entry}, pools=pools))


def place(config: Config, side: DecodeSide, rank: int, pages: tuple[int, ...], k: int, content: Content) -> DecodeSide:
    """A write of prefill rank `k` lands in pages of the pool."""
    return replace(side, memory=side.memory.update({(rank, page, k): content for page in pages}))


def stage(
    config: Config, side: DecodeSide, number: Attempt, rank: int, first: int, pages: int, k: int, content: Content
) -> DecodeSide:
    """A write lands in the memory that is private to its attempt."""
    return replace(side, staging=side.staging.update({(number, rank, first + i, k): content for i in range(pages)}))


def crash(config: Config, side: DecodeSide) -> DecodeSide:
    """A new life, with fresh machine and pools; its memory is fresh too, unless the world says otherwise."""
    fresh = start(config, side.number + 1, side.known, side.waiting)
    return fresh if config.fresh else replace(fresh, memory=side.memory)


def told_of(config: Config, side: DecodeSide, *facts: Any) -> DecodeSide:
    """It will hear these facts, in its own time."""
    return replace(side, notices=side.notices.union(facts))


def meets(config: Config, side: DecodeSide, old: Peer, new: Peer, *facts: Any) -> DecodeSide:
    """A prefill rank has a new life, and PUBLISH goes there; that the old one is over is heard in its own time."""
    return replace(
        side, known=tuple(new if each == old else each for each in side.known), notices=side.notices.union(facts)
    )


def _left(side: DecodeSide, number: Attempt) -> DecodeSide:
    return replace(side, reading=frozenset(each for each in side.reading if each[0] != number))


def _with_pool(side: DecodeSide, rank: int, change: Any, *given: Any) -> tuple[ReferencePages, ...]:
    return (*side.pools[:rank], change(side.pools[rank], *given), *side.pools[rank + 1 :])


# ---------------------------------------------------------------- effects


class _Turn:
    """One fact and what follows from it."""

    def __init__(self, config: Config, side: DecodeSide) -> None:
        self.config = config
        self.side = side
        self.sends: list[Envelope] = []
        self.failed: list[Attempt] = []
        self.reads: list[tuple[LaunchRead, RequestId]] = []
        self.wrong = ""
        self._known = set(side.machine.attempts)

    def changed(self, **fields: Any) -> DecodeSide:
        self.side = replace(self.side, **fields)
        return self.side

    def run(self, fact: Any) -> None:
        facts = deque([fact])
        while facts:
            machine, effects = self._step(facts.popleft())
            self.changed(machine=machine)
            self._known |= set(machine.attempts)
            facts.extend(verdict for effect in effects if (verdict := self._obey(effect)) is not None)

    def _step(self, fact: Any) -> Any:
        machine: Any = self.side.machine
        return puller.step(machine, fact) if self.config.pull else receiver.step(machine, fact)

    def _obey(self, effect: Any) -> Verified | None:  # noqa: C901 - one branch per effect
        match effect:
            case LaunchRead(attempt=attempt):
                self.reads.append((effect, self.side.machine.attempts[attempt].request))
            case Send(envelope=envelope):
                self.sends.append(envelope)
            case Verify(attempt=attempt):
                return Verified(attempt, None if self._is_covered(attempt) else NOT_COVERED)
            case Cache(attempt=attempt) if self.config.cache:
                self._cache(attempt)
            case Attach(attempt=attempt):
                self._mark(attempt, PageState.USED)
            case Hold(attempt=attempt):
                self._mark(attempt, PageState.HELD)
            case Quarantine(attempt=attempt):
                self._mark(attempt, PageState.QUARANTINED)
            case Release(attempt=attempt, decode_rank=rank):
                self._release(attempt, rank)
            case RequestFailed(attempt=attempt):
                self._fail(attempt)
            case TryFence(attempt=attempt, peers=peers) | CloseEndpoint(attempt=attempt, peers=peers):
                self.changed(asked=self.side.asked.union((attempt, peer) for peer in peers))
            case StartTimer(attempt=attempt, timer=timer):
                self.changed(clocks=self.side.clocks | {(attempt, timer)})
            case StopTimers(attempt=attempt):
                self.changed(clocks=frozenset(each for each in self.side.clocks if each[0] != attempt))
        return None

    def _mark(self, number: Attempt, state: PageState) -> None:
        for rank in range(self.config.ranks):
            if pages := self.side.own.get((number, rank)):
                self.changed(pools=_with_pool(self.side, rank, reference.mark, frozenset(pages), state))

    def _fail(self, number: Attempt) -> None:
        if number in self.side.told or number not in self._known:
            self.wrong = f"once: the owner of #{number} is told again that it failed"
        self.failed.append(number)
        self.changed(told=self.side.told | {number})
        self.side = _left(self.side, number)

    def _release(self, number: Attempt, rank: int) -> None:
        """The one place where a lease's pages come back (rule 15)."""
        pages = self.side.own.get((number, rank))
        if pages is None:
            self.wrong = f"once: rank {rank} releases #{number} again"
            return
        pools = _with_pool(self.side, rank, reference.release, frozenset(pages))
        self.changed(pools=pools, own=self.side.own.delete((number, rank)))
        self.side = _left(self.side, number)

    def _cache(self, number: Attempt) -> None:
        """All of the prompt's pages but the last may be shared; the lease shrinks by those that are."""
        attempt = self.side.machine.attempts.get(number)
        if attempt is None:
            self.wrong = f"no_poison: #{number} is cached although it is over"
            return
        for rank, lease in enumerate(attempt.leases):
            first = self.config.lease_pages - lease.pages
            known = {at for e, at in self.side.cached if (e.decode_rank, e.content.digest) == (rank, attempt.digest)}
            content = Content(lease.tag, attempt.digest)
            places = enumerate(pages_of(lease)[:-1], first)
            taken = [(Cached(rank, page, number, content), at) for at, page in places if at not in known]
            self._share(number, rank, taken)

    def _share(self, number: Attempt, rank: int, taken: list[tuple[Cached, int]]) -> None:
        pages = frozenset(each.page for each, _ in taken)
        own = tuple(page for page in self.side.own.get((number, rank), ()) if page not in pages)
        self.changed(
            pools=_with_pool(self.side, rank, reference.mark, pages, PageState.CACHED, ""),
            own=self.side.own.set((number, rank), own),
            cached=self.side.cached.union(taken),
            reading=self.side.reading.union((number, each) for each, _ in taken),
        )

    def _is_covered(self, number: Attempt) -> bool:
        """Rule 11: every page of every rank bears its lease's tag. Staged: copy to the pool, then verify the copy."""
        attempt = self.side.machine.attempts[number]
        if self.config.staged:
            self._unstage(number)
        if not self.config.covered:
            return True
        for rank, lease in enumerate(attempt.leases):
            for place in ((rank, page, peer.rank) for page in pages_of(lease) for peer in attempt.grants):
                found = self.side.memory.get(place)
                if found is None or found.tag != lease.tag:
                    return False
                if self.config.staged and found.digest != attempt.digest:
                    return False
        return True

    def _unstage(self, number: Attempt) -> None:
        attempt = self.side.machine.attempts[number]
        copies = {
            (rank, page, k): content
            for (of, rank, at, k), content in self.side.staging.items()
            if of == number
            for page in pages_of(attempt.leases[rank])[at : at + 1]
        }
        self.changed(memory=self.side.memory.update(copies))
