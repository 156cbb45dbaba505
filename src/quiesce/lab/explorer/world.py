"""One state of everything: decode, prefill ranks, messages, writes, and which faults may still strike."""

from __future__ import annotations

from typing import Any

from quiesce.ids import Attempt, AttemptKey, Peer, RequestId
from quiesce.kv import reference
from quiesce.lab.explorer import between, decode_side, prefill_side, pull_judge, reads
from quiesce.lab.explorer.between import Air, Flown, Wires
from quiesce.lab.explorer.config import Config, Req
from quiesce.lab.explorer.decode_side import DecodeSide, DecodeStep, Place
from quiesce.lab.explorer.doing import Doing
from quiesce.lab.explorer.judge import wrong_with
from quiesce.lab.explorer.move import DECODE
from quiesce.lab.explorer.prefill_side import PrefillSide, PrefillStep
from quiesce.lab.explorer.reads import Reads
from quiesce.protocol.invariants import Cached, Content, Picture
from quiesce.protocol.messages import Envelope
from quiesce.protocol.puller_io import LaunchRead
from quiesce.protocol.record import NO_REQUEST, SenderState

NONE: frozenset[Any] = frozenset()
Budget = tuple[tuple[str, int], ...]
Key = tuple[DecodeSide, tuple[PrefillSide, ...], Wires, Air | Reads, Budget]


class World:
    """Never changed: every move makes another one of parts that are mostly the same.

    `key` is all that can matter to what happens next. `error` is what the last move itself did wrong. `told` (whose
    owner ever heard that it failed) is for people. `air` has writes under way, or, in pull, reads.
    """

    __slots__ = ("air", "budget", "config", "decode", "do", "error", "prefills", "told", "wires")

    def __init__(self, config: Config, do: Doing | None = None) -> None:
        self.config = config
        self.do = Doing(config) if do is None else do
        every = tuple((k, each) for k in range(config.prefills) for each in config.requests)
        arrivals = every if config.arrivals is None else config.arrivals
        halves = [frozenset(req for k, req in arrivals if k == rank) for rank in range(config.prefills)]
        self.prefills = tuple(prefill_side.start(config, rank, 0, waiting) for rank, waiting in enumerate(halves))
        known = tuple(each.me for each in self.prefills)
        self.decode = decode_side.start(config, 0, known, frozenset(config.requests))
        self.wires = Wires()
        self.air: Any = Reads() if config.pull else Air()
        self.budget: Budget = config.budget
        self.error = ""
        self.told: frozenset[Any] = NONE

    def copy(self) -> World:
        other = self._next()
        other.error = self.error
        return other

    def _next(self) -> World:
        """The same parts, and nothing that the last move did wrong."""
        other = object.__new__(World)
        other.config, other.do, other.budget, other.told = self.config, self.do, self.budget, self.told
        other.decode, other.prefills, other.wires, other.air = self.decode, self.prefills, self.wires, self.air
        other.error = ""
        return other

    def key(self) -> Key:
        return (self.decode, self.prefills, self.wires, self.air, self.budget)

    # ---------------------------------------------------------------- parts that change

    def decided(self, step: DecodeStep) -> World:
        """What came of a step of decode."""
        other = self._next()
        other.decode = step.side
        if step.sends:
            other.wires = self.do(between.send, self.wires, step.sends)
        for launch, request in step.reads:
            lent = self._lent_as(launch, request)
            other.air = self.do(reads.launch, other.air, launch, step.side.machine.incarnation, lent)
        if step.failed:
            life = step.side.number
            other.told = self.told.union((life, "failed", number) for number in step.failed)
        other.error = step.wrong
        return other

    def _lent_as(self, launch: LaunchRead, request: RequestId) -> RequestId:
        """Of two requests with one room and one prompt, prefill may have bound either to this attempt."""
        key = AttemptKey(Peer(launch.decode_rank, self.decode.machine.incarnation), launch.attempt)
        record = self.prefills[launch.peer.rank].machine.records.get(key)
        return request if record is None or record.request == NO_REQUEST else record.request

    def worked(self, k: int, step: PrefillStep) -> World:
        """What came of a step of a prefill rank."""
        other = self._next()
        other.prefills = (*self.prefills[:k], step.side, *self.prefills[k + 1 :])
        if step.sends:
            other.wires = self.do(between.send, self.wires, step.sends)
        if step.launches:
            other.air = self.do(between.launch, self.air, step.side.me, step.launches)
        other.error = step.wrong
        return other

    def but(self, **parts: Any) -> World:
        other = self._next()
        for name, part in parts.items():
            setattr(other, name, part)
        return other

    def with_prefill(self, k: int, side: PrefillSide) -> World:
        return self.but(prefills=(*self.prefills[:k], side, *self.prefills[k + 1 :]))

    # ---------------------------------------------------------------- what must hold

    def check(self) -> str | None:
        """What is wrong here, as `invariant: what`; None if nothing is."""
        wrong = pull_judge.wrong_with if self.config.pull else wrong_with
        return self.error or wrong(self.do, self.decode, self.prefills, self.wires, self.air) or None

    def picture(self) -> Picture:
        flights = frozenset(each.flight for each in self.air.flights if each.state != "shut")
        return Picture(self.decode.machine, self.senders, flights, self.net)

    # ---------------------------------------------------------------- for whoever looks at it

    @property
    def receiver(self) -> Any:
        """Decode's machine: a `ReceiverState`, or in pull a `PullerState`."""
        return self.decode.machine

    @property
    def decode_life(self) -> int:
        return self.decode.number

    @property
    def senders(self) -> tuple[SenderState, ...]:
        return tuple(each.machine for each in self.prefills)

    @property
    def net(self) -> frozenset[Envelope]:
        return self.wires.messages

    @property
    def flights(self) -> frozenset[Flown]:
        """The writes under way; in pull there are none."""
        return frozenset() if self.config.pull else self.air.flights

    @property
    def memory(self) -> dict[Place, Content]:
        return dict(self.decode.memory)

    @property
    def free(self) -> tuple[tuple[int, ...], ...]:
        """The free pages of each decode rank."""
        return tuple(tuple(sorted(reference.free_pages(pool))) for pool in self.decode.pools)

    @property
    def cached(self) -> frozenset[tuple[Cached, int]]:
        return self.decode.cached

    @property
    def asked(self) -> frozenset[tuple[Attempt, Peer]]:
        return self.decode.asked

    @property
    def waiting_d(self) -> frozenset[Req]:
        return self.decode.waiting

    @property
    def notices(self) -> frozenset[tuple[int, Any]]:
        """(where, fact): what each side will hear of in its own time."""
        mine = {(DECODE, fact) for fact in self.decode.notices}
        return frozenset(mine.union((k, fact) for k, side in enumerate(self.prefills) for fact in side.notices))

    def lacking(self, req: Req) -> int:
        """How many pages a lease for `req` must have."""
        return decode_side.lacking(self.config, self.decode, req)
