"""One prefill rank of a world: the shipping sender machine and its source pages, obeyed as by an executor."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from quiesce.errors import InvariantBroken
from quiesce.ids import AttemptKey, PageTag, Peer, RequestId, Room
from quiesce.kv import reference
from quiesce.kv.reference import ReferencePages
from quiesce.kv.states import PageState
from quiesce.lab.explorer.config import Config, Req
from quiesce.lab.explorer.lives import life, number_of
from quiesce.protocol import lender, sender, sender_rules
from quiesce.protocol.lender_io import Computed, Revoke, Revoked, TakeBack
from quiesce.protocol.messages import Envelope, Lease
from quiesce.protocol.record import RecordPhase, SenderState
from quiesce.protocol.sender_io import (
    Arrived,
    CacheSource,
    ChunkComputed,
    Launch,
    PrefillDone,
    PrefillFailed,
    ReleaseSource,
    Reply,
    SenderTimerFired,
    SourceFenced,
    StartCompute,
    StartSenderTimer,
    StopCompute,
    StopSenderTimers,
)

NONE: frozenset[Any] = frozenset()


class PrefillSide(msgspec.Struct, frozen=True, cache_hash=True):
    """Everything at one prefill rank that can matter to what happens next.

    `waiting` has not arrived yet. `computing` has (request, next chunk). Of the requests that the machine knows, `told`
    are those whose owner heard how they ended, and `cached` those whose source entered the prefix tree. `pool` has the
    source pages, when they are counted. `revoking` are the windows that its backend was asked to revoke, and can.
    """

    machine: SenderState
    waiting: frozenset[Req]
    pool: ReferencePages | None = None
    computing: frozenset[tuple[RequestId, int]] = NONE
    clocks: frozenset[tuple[Any, Any]] = NONE
    notices: frozenset[Any] = NONE
    told: frozenset[RequestId] = NONE
    cached: frozenset[RequestId] = NONE
    revoking: frozenset[AttemptKey] = NONE

    @property
    def me(self) -> Peer:
        return self.machine.me


class PrefillStep(NamedTuple):
    """What came of a step: the side after it, what it sends, what it launches with its source pages, what is wrong."""

    side: PrefillSide
    sends: tuple[Envelope, ...] = ()
    launches: tuple[tuple[Launch, tuple[int, ...]], ...] = ()
    wrong: str = ""


def start(config: Config, rank: int, number: int, waiting: frozenset[Req]) -> PrefillSide:
    me = Peer(rank, life("e", rank, number))
    pool = reference.fresh(config.sources, _ANY_TAG) if config.sources else None
    machine = lender.start(me) if config.pull else sender.start(me, window=config.window, batch_pages=config.batch)
    return PrefillSide(machine, waiting, pool)


_ANY_TAG: Any = 1  # source pages are told apart by their owners

# ---------------------------------------------------------------- what happens to it


def feed(config: Config, side: PrefillSide, *facts: Any) -> PrefillStep:
    """The machine hears these facts, one after the other, and its effects are carried out in order."""
    turn = _Turn(config, side)
    try:
        for fact in facts:
            turn.run(fact)
    except InvariantBroken as broken:
        turn.wrong = broken.message.removeprefix("invariant ").replace(" is broken", "", 1)
    live = frozenset(turn.side.machine.requests)
    side = turn.changed(told=turn.side.told & live, cached=turn.side.cached & live)
    return PrefillStep(side, tuple(turn.sends), tuple(turn.launches), turn.wrong)


def may_arrive(config: Config, side: PrefillSide, req: Req) -> bool:
    return side.pool is None or len(reference.free_pages(side.pool)) >= config.lease_pages


def arrive(config: Config, side: PrefillSide, req: Req) -> PrefillStep:
    """The door admits a request; its source pages are taken."""
    side = replace(side, waiting=side.waiting - {req})
    if side.pool is not None:
        pool, _ = reference.allocate(side.pool, config.lease_pages, req.name, PageState.USED)
        side = replace(side, pool=replace(pool, next_tag=_ANY_TAG))
    return feed(config, side, Arrived(req.id, Room(req.room), req.digest, config.ranks))


def compute(config: Config, side: PrefillSide, request: RequestId, chunk: int) -> PrefillStep:
    if config.pull:
        return _computed(config, replace(side, computing=side.computing - {(request, chunk)}), request)
    lacking = _lacking(side, request) if config.cache else config.lease_pages
    first, last = chunk * (lacking // config.chunks), chunk == config.chunks - 1
    pages = lacking - first if last else lacking // config.chunks
    computing = side.computing - {(request, chunk)}
    side = replace(side, computing=computing if last else computing | {(request, chunk + 1)})
    return feed(config, side, ChunkComputed(request, first, pages, last, 5 if last else -1))


def _computed(config: Config, side: PrefillSide, request: RequestId) -> PrefillStep:
    """All of the prompt at once: what decode lacks of it is lent, to each decode rank through a window of its own."""
    bound = side.machine.requests[request].bound
    held = side.machine.records[bound[0]].held_tokens
    pages = _owned(side, request)[held:] if side.pool is not None else tuple(range(held, config.lease_pages))
    runs = b"".join(struct.pack("<II", page, 1) for page in pages)
    leases = tuple(Lease(PageTag(key.attempt), len(pages), runs, 0) for key in bound)
    return feed(config, side, Computed(request, leases, 5))


def _owned(side: PrefillSide, request: RequestId) -> tuple[int, ...]:
    pages = enumerate(() if side.pool is None else side.pool.pages)
    return tuple(number for number, page in pages if page.owner == request)


def revoke(config: Config, side: PrefillSide, *keys: AttemptKey) -> PrefillStep:
    """These windows are revoked, and that is a fact."""
    return feed(config, replace(side, revoking=side.revoking.difference(keys)), *map(Revoked, keys))


def deaf(config: Config, side: PrefillSide) -> PrefillSide:
    """Nothing more arrives."""
    return replace(side, waiting=NONE)


def _lacking(side: PrefillSide, request: RequestId) -> int:
    """How many pages of the prompt decode leased: those it does not hold."""
    first, *_ = side.machine.requests[request].bound
    return side.machine.records[first].lease.pages


def notice(config: Config, side: PrefillSide, fact: Any) -> PrefillStep:
    return feed(config, replace(side, notices=side.notices - {fact}), fact)


def fire(config: Config, side: PrefillSide, clock: tuple[Any, Any]) -> PrefillStep:
    return feed(config, replace(side, clocks=side.clocks - {clock}), SenderTimerFired(*clock))


def close(config: Config, side: PrefillSide) -> PrefillStep:
    """Its own endpoint is destroyed and joined."""
    return feed(config, replace(side, waiting=NONE), SourceFenced())


def crash(config: Config, side: PrefillSide) -> PrefillSide:
    """A new life, which knows nothing; with `again` the router sends it the requests once more."""
    waiting = side.waiting | frozenset(config.requests) if config.again else side.waiting
    return start(config, side.me.rank, number_of(side.me.incarnation) + 1, waiting)


def told_of(config: Config, side: PrefillSide, *facts: Any) -> PrefillSide:
    """It will hear these facts, in its own time."""
    return replace(side, notices=side.notices.union(facts))


def holder_of(side: PrefillSide, source: int) -> RequestId:
    """Whose context a source page has; "" is nobody's."""
    return RequestId("" if side.pool is None else side.pool.pages[source].owner)


# ---------------------------------------------------------------- effects


class _Turn:
    """One fact and what follows from it."""

    def __init__(self, config: Config, side: PrefillSide) -> None:
        self.config = config
        self.side = side
        self.sends: list[Envelope] = []
        self.launches: list[tuple[Launch, tuple[int, ...]]] = []
        self.wrong = ""
        self._before = side.machine
        self._known = set(side.machine.requests)
        self._freed: set[RequestId] = set()
        self._taken: set[AttemptKey] = set()

    def changed(self, **fields: Any) -> PrefillSide:
        self.side = replace(self.side, **fields)
        return self.side

    def run(self, fact: Any) -> None:
        self._before = self.side.machine
        machine, effects = self._step(fact)
        self.changed(machine=machine)
        self._known |= set(machine.requests)
        for effect in effects:
            self._obey(effect)

    def _step(self, fact: Any) -> Any:
        return (lender if self.config.pull else sender).step(self.side.machine, fact)

    def _obey(self, effect: Any) -> None:  # noqa: C901 - one branch per effect
        match effect:
            case Revoke(key=key) if self.config.revoke:
                self.changed(revoking=self.side.revoking | {key})
            case TakeBack(key=key):
                self._take_back(key)
            case Reply(envelope=envelope):
                self.sends.append(envelope)
            case Launch():
                self._launch(effect)
            case StartCompute(request=request):
                self.changed(computing=self.side.computing | {(request, 0)})
            case StopCompute(request=request):
                self.changed(computing=frozenset(each for each in self.side.computing if each[0] != request))
            case ReleaseSource(request=request):
                self._free(request)
            case CacheSource(request=request):
                self._cache(request)
            case PrefillFailed(request=request) | PrefillDone(request=request):
                self._tell(effect, request)
            case StartSenderTimer(subject=subject, timer=timer):
                self.changed(clocks=self.side.clocks | {(subject, timer)})
            case StopSenderTimers(subject=subject):
                self.changed(clocks=frozenset(each for each in self.side.clocks if each[0] != subject))

    def _launch(self, launch: Launch) -> None:
        pages: tuple[int, ...] = ()
        if self.side.pool is not None:
            mine = _owned(self.side, launch.request)
            lead = self.config.lease_pages - launch.lease.pages  # what decode holds of the prompt
            pages = mine[lead + launch.first_page : lead + launch.first_page + launch.pages]
        self.launches.append((launch, pages))

    def _tell(self, effect: Any, request: RequestId) -> None:
        """Each owner hears once. Rule 12 at prefill: cached is what ended well, and nothing else."""
        if request in self.side.told or request not in self._known:
            self.wrong = f"once: the owner of {request} is told again how it ended"
        if not self.config.pull and (request in self.side.cached) != isinstance(effect, PrefillDone):
            self.wrong = f"no_poison: {effect}"
        self.changed(told=self.side.told | {request})

    def _cache(self, request: RequestId) -> None:
        """Rule 12 in pull: what was committed by every decode rank, and nothing else."""
        bound = self._before.requests[request].bound
        records = [self.side.machine.records.get(key) for key in bound]
        if self.config.pull and not all(each and each.phase is RecordPhase.DONE for each in records):
            self.wrong = f"no_poison: the source of {request} is cached"
        self.changed(cached=self.side.cached | {request})

    def _take_back(self, key: AttemptKey) -> None:
        record = self._before.records.get(key)
        if record is None or not sender_rules.is_lent(record) or key in self._taken:
            self.wrong = f"once: the window of {key} is taken back again"
        self._taken.add(key)
        self.changed(revoking=self.side.revoking - {key})

    def _free(self, request: RequestId) -> None:
        if request not in self._known or request in self._freed:
            self.wrong = f"once: the source of {request} is freed again"
            return
        self._freed.add(request)
        if self.side.pool is not None:
            self.changed(pool=reference.release(self.side.pool, frozenset(_owned(self.side, request))))
