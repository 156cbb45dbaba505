"""Backends that break one promise of pull each: the conformance suite has to find every one of them out."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from quiesce.ids import PageTag, Peer
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion, OnDead
from quiesce.transport.pulling import Read, Source
from quiesce.transport.tcp.intake import Intake
from quiesce.transport.tcp.lender import TcpLender
from quiesce.transport.tcp.puller import TcpFlight, TcpPuller
from quiesce.transport.tcp.windows import Window, Windows

from .liars import TCP, Spinning, receive_with_the_lock


class PlacesNextDoor(TcpPuller):
    """The right bytes in the page beside."""

    def launch(self, source: Source, read: Read) -> None:
        super().launch(source, replace(read, target_pages=(read.target_pages + 1) % self._pool.pages))


class WrapsRound(TcpPuller):
    """Takes a page number that is too high round the end of the pool."""

    def launch(self, source: Source, read: Read) -> None:
        super().launch(source, replace(read, target_pages=read.target_pages % self._pool.pages))


class OpenHouse(Windows):
    """Asks nobody for a window."""

    def find(self, tag: int, pages: npt.NDArray[np.integer[Any]]) -> Window:
        return Window(pages)


class LendsEverything(TcpLender):
    def __init__(self, pool: Pool, host: str, port: int) -> None:
        super().__init__(pool, host, port)
        self._windows = OpenHouse()


class HurriedIntake(Intake):
    """Stamps what it has asked for, and lets the bytes go."""

    def _place(self, read: Read) -> None:
        pages = self._pool.page_view()[read.target_pages]
        super()._place(read)
        self._pool.page_view()[read.target_pages] = pages


class StampsFirst(TcpPuller):
    line = HurriedIntake


class SaysReadsTwice(TcpPuller):
    def completions(self) -> list[Completion]:
        return [each for each in super().completions() for _ in range(2)]


class RevokesInWords(TcpLender):
    """Says that the window is closed, and lets what is under way go on."""

    def revoke(self, tag: PageTag) -> bool:
        window = self._windows._open.pop(tag, None)
        return window is not None or True


class CallsReadsQuiesced(TcpPuller):
    """At the deadline it says that nothing comes any more, and reads on."""

    abandons = True

    def _give_up(self, flight: TcpFlight) -> None:
        """Nothing."""

    def completions(self) -> list[Completion]:
        ends = super().completions()
        return [
            replace(each, outcome=Outcome.FAILED_QUIESCED) if each.outcome is Outcome.FAILED_IN_FLIGHT else each
            for each in ends
        ]


class SilentIntake(Intake):
    def read(self, read: Read, may_leave: Callable[[], bool]) -> tuple[Outcome, str]:
        ended = super().read(read, may_leave)
        if self.broken:
            raise SystemExit  # ends its thread, quietly, and nobody lands the read
        return ended


class HangsWithItsLender(TcpPuller):
    """The thread whose connection broke is never heard of again."""

    line = SilentIntake


class KnowsTheOldTickets(TcpLender):
    """Its secret is the same in every life."""

    def __init__(self, pool: Pool, host: str, port: int) -> None:
        super().__init__(pool, host, port)
        self._secret = b"s" * 32
        self._good = _Everybody()


class _Everybody(set[bytes]):
    def __contains__(self, _: object) -> bool:
        return True


class HearsNoDeath(TcpLender):
    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None:
        os.close(pidfd)
        super().watch(peer, -1, on_dead, loop)


class ReadsAfterClose(TcpPuller):
    """Its threads go on with what no deadline took from them."""

    def _give_up(self, flight: object) -> None:
        """Nothing."""

    abandons = True

    def close(self) -> None:
        self._flights.close()


class IntakeThatPlacesMore(Intake):
    """A word behind the last page."""

    def _place(self, read: Read) -> None:
        super()._place(read)
        if self._pool.pages - 1 in read.target_pages:
            ctypes.memset(self._pool.base_address + self._pool.pages * self._pool.layout.page_bytes, 0, 8)


class PlacesALittleMore(TcpPuller):
    line = IntakeThatPlacesMore


class IntakeWithTheLock(Intake):
    def _place(self, read: Read) -> None:
        receive_with_the_lock(self._stream, self._spans(read.target_pages))


class ReadsWithTheLock(TcpPuller):
    line = IntakeWithTheLock


class LendsWhenClosed(TcpLender):
    """Its threads go on sending when it was closed."""

    def close(self) -> None:
        """Nothing."""


class SpinsWhileNobodyReads(Spinning, TcpLender):
    """A lender of that kind."""


NEXT_DOOR = replace(TCP, puller=PlacesNextDoor)
ROUND = replace(TCP, puller=WrapsRound)
HOUSE = replace(TCP, lender=LendsEverything)
STAMPED = replace(TCP, puller=StampsFirst)
READ_TWICE = replace(TCP, puller=SaysReadsTwice)
WORDS = replace(TCP, lender=RevokesInWords)
QUIET = replace(TCP, puller=CallsReadsQuiesced)
HANGING = replace(TCP, puller=HangsWithItsLender)
REBORN = replace(TCP, lender=KnowsTheOldTickets)
DEAF = replace(TCP, lender=HearsNoDeath)
OPEN = replace(TCP, puller=ReadsAfterClose)
SPINNING = replace(TCP, lender=SpinsWhileNobodyReads)
BESIDE = replace(TCP, puller=PlacesALittleMore)
GRASPING = replace(TCP, puller=ReadsWithTheLock)
AJAR = replace(TCP, lender=LendsWhenClosed)
