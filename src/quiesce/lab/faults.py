"""Writes that misbehave on command: they wait before a step, leave a step out, or meet a fate (`fated_sender`)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from quiesce.kv.runs import CopyRuns, Pages
from quiesce.kv.storage import Pool
from quiesce.transport.contract import Completion, Write
from quiesce.transport.departure import Departure
from quiesce.transport.flights import J
from quiesce.transport.lanes import D, Lanes
from quiesce.transport.mooncake.library import MooncakeDescriptor
from quiesce.transport.mooncake.sender import MooncakeSender
from quiesce.transport.nixl.library import NixlDescriptor
from quiesce.transport.nixl.sender import NixlSender
from quiesce.transport.onesided import A, Copies, OneSidedSender, Words
from quiesce.transport.placement import Placement, Placing
from quiesce.transport.pulling import Read
from quiesce.transport.tcp.intake import Intake
from quiesce.transport.tcp.lanes import L, TcpLanes
from quiesce.transport.tcp.outbound import Outbound
from quiesce.transport.tcp.puller import TcpPuller
from quiesce.transport.tcp.sender import TcpSender
from quiesce.transport.tcp.wire import TcpDescriptor
from quiesce.trust.contexts import Tls


class Step(StrEnum):
    """Where a write can be held: before its bytes, before its tags, before its metadata."""

    BYTES = "bytes"
    STAMP = "stamp"
    METADATA = "metadata"


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """test -> worker: hold the next `count` writes before `step`, until LetGo."""

    step: Step = Step.BYTES
    count: int = 1


class LetGo(msgspec.Struct, frozen=True, tag="let_go"):
    """test -> worker: writes that are held go on and no more are held. Without `stamp` they leave tags unwritten."""

    stamp: bool = True


class Pace(msgspec.Struct, frozen=True, tag="pace"):
    """test -> worker: a random `share` of all writes to come takes a random time up to `most_s` before bytes move."""

    seed: int
    most_s: float
    share: float = 1.0


class Fate(StrEnum):
    """What a transport that breaks its word does with a write of pages, and how it says that the write ended."""

    DROP = "drop"
    """Nothing is written; `landed`."""
    TRUNCATE = "truncate"
    """The first half of its pages is written; `landed`."""
    BITFLIP = "bitflip"
    """One bit of its first page arrives as another one; `landed`."""
    FAIL = "fail"
    """Nothing is written; `failed_quiesced`, which is true."""
    FAIL_BUT_LAND = "fail_but_land"
    """All is written; `failed_in_flight`, which is true, at once."""


class Doom(msgspec.Struct, frozen=True, tag="doom"):
    """test -> worker: the next `count` writes of pages meet `fate`."""

    fate: Fate
    count: int = 1


class Armed(msgspec.Struct, frozen=True, tag="armed"):
    """worker -> test: the order is in force."""


class Held(msgspec.Struct, frozen=True, tag="held"):
    """worker -> test: a write waits."""

    write: int
    pages: int


class Landed(msgspec.Struct, frozen=True, tag="landed"):
    """worker -> test: every byte of a write that had waited is at its destination, or the receiver refused it."""

    write: int


class Struck(msgspec.Struct, frozen=True, tag="struck"):
    """worker -> test: a write meets its fate."""

    write: int
    fate: Fate


FaultOrder = Hold | LetGo | Pace | Doom
FaultEvent = Armed | Held | Landed | Struck


class Job(Protocol):
    """A write or a read, as far as faults look at it."""

    @property
    def id(self) -> int: ...
    @property
    def target_pages(self) -> Pages: ...


class Faults:
    """What transfer threads ask before each step. Orders come from the loop's thread, events go out by `tell`."""

    def __init__(self, tell: Callable[[FaultEvent], None]) -> None:
        self._tell = tell
        self._changed = threading.Condition()
        self._hold = Hold(count=0)
        self._open = True
        self._stamp = True
        self._waited: set[int] = set()
        self._doom = Doom(Fate.DROP, count=0)
        self._pace: random.Random | None = None
        self._pace_most_s = 0.0
        self._pace_share = 1.0

    def order(self, order: FaultOrder) -> None:
        with self._changed:
            match order:
                case Hold():
                    self._hold, self._open, self._stamp = order, False, True
                case LetGo(stamp):
                    self._hold, self._open, self._stamp = Hold(count=0), True, stamp
                    self._changed.notify_all()
                case Pace(seed, most_s, share):
                    self._pace, self._pace_most_s, self._pace_share = random.Random(seed), most_s, share
                case Doom():
                    self._doom = order
        self._tell(Armed())

    def before(self, step: Step, write: Job) -> None:
        """Wait here if this write, or read, is to be held before `step`."""
        with self._changed:
            if self._hold.count < 1 or self._hold.step is not step:
                return
            self._hold = msgspec.structs.replace(self._hold, count=self._hold.count - 1)
            self._waited.add(write.id)
            self._tell(Held(write.id, len(write.target_pages)))
            self._changed.wait_for(lambda: self._open)

    def fate_of(self, write: Job) -> Fate | None:
        """Asked once for each write."""
        with self._changed:
            if self._doom.count < 1 or not len(write.target_pages):
                return None
            self._doom = msgspec.structs.replace(self._doom, count=self._doom.count - 1)
            self._tell(Struck(write.id, self._doom.fate))
            return self._doom.fate

    def pace(self) -> None:
        with self._changed:
            delay_s = 0.0
            if self._pace is not None and self._pace.random() < self._pace_share:
                delay_s = self._pace.uniform(0, self._pace_most_s)
        time.sleep(delay_s)

    def may_stamp(self, write: int) -> bool:
        with self._changed:
            return self._stamp or write not in self._waited

    def after(self, write: int) -> None:
        with self._changed:
            waited = write in self._waited
        if waited:
            self._tell(Landed(write))


class FaultyPlacement(Placement):
    """The product's placement, asking `Faults` before each step."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def copy(self, placing: Placing, runs: CopyRuns) -> None:
        self._faults.pace()
        self._faults.before(Step.BYTES, placing.write)
        super().copy(placing, runs)
        if not self._faults.may_stamp(placing.write.id):
            self._faults.after(placing.write.id)

    def stamp(self, placing: Placing) -> None:
        self._faults.before(Step.STAMP, placing.write)
        if self._faults.may_stamp(placing.write.id):
            super().stamp(placing)
            self._faults.after(placing.write.id)

    def write_metadata(self, placing: Placing) -> None:
        self._faults.before(Step.METADATA, placing.write)
        if self._faults.may_stamp(placing.write.id):
            super().write_metadata(placing)


class FaultyDeparture(Departure[Any]):
    """Where nothing but the departure can be held: asks `Faults` before a write, or a read, leaves."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def leave(self, job: Job, /) -> None:
        self._faults.pace()
        self._faults.before(Step.BYTES, job)


class Telling(Lanes[D, J]):
    """Holds what is launched before it leaves, and tells of what had waited when it has ended."""

    def __init__(self, pool: Pool, threads: int, call_deadline_s: float, faults: Faults) -> None:
        super().__init__(pool, threads, call_deadline_s, FaultyDeparture(faults))
        self._faults = faults

    def completions(self) -> list[Completion]:
        completions = super().completions()
        for completion in completions:
            self._faults.after(completion.id)
        return completions


class TellingOneSided(Telling[A, Write], OneSidedSender[A]):
    """Besides, a write that had waited may leave its tags unwritten, as those of other systems do."""

    def _steps(self, write: Write, described: A, staging: Words) -> list[Copies]:
        steps = super()._steps(write, described, staging)
        return steps if self._faults.may_stamp(write.id) else steps[:1]


class TellingTcp(Telling[TcpDescriptor, J], TcpLanes[J, L]):
    def __init__(
        self, pool: Pool, threads: int, call_deadline_s: float, faults: Faults, tls: Tls | None = None
    ) -> None:
        super().__init__(pool, threads, call_deadline_s, faults)
        self._tls = tls


class FaultyTcpSender(TellingTcp[Write, Outbound], TcpSender):
    """Its tags are the receiver's."""


class FaultyTcpPuller(TellingTcp[Read, Intake], TcpPuller):
    """Its tags are its own."""


class FaultyMooncakeSender(TellingOneSided[MooncakeDescriptor], MooncakeSender):
    """Pages and tags are both the sender's."""


class FaultyNixlSender(TellingOneSided[NixlDescriptor], NixlSender):
    """Pages and tags are both the sender's."""
