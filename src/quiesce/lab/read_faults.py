"""Reads that misbehave on command: they wait at decode before they leave, or at prefill before a byte is served."""

from __future__ import annotations

import itertools

import msgspec

from quiesce.kv.runs import Pages, expand
from quiesce.kv.storage import Pool
from quiesce.lab.faults import Faults, Step
from quiesce.transport.contract import Completion
from quiesce.transport.departure import Departure
from quiesce.transport.pulling import Read
from quiesce.transport.tcp.borrower import Borrower
from quiesce.transport.tcp.inbound import Guest, Runs
from quiesce.transport.tcp.lender import TcpLender
from quiesce.transport.tcp.puller import TcpPuller
from quiesce.transport.tcp.sockets import Stream
from quiesce.transport.tcp.windows import Window
from quiesce.trust.contexts import Tls


class FaultyReadDeparture(Departure[Read]):
    """Asks `Faults` before a read leaves decode."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def leave(self, read: Read) -> None:
        self._faults.pace()
        self._faults.before(Step.BYTES, read)


class FaultyTcpPuller(TcpPuller):
    """Holds reads before they leave, and tells of those that had waited when they have ended."""

    def __init__(
        self, pool: Pool, threads: int, call_deadline_s: float, faults: Faults, tls: Tls | None = None
    ) -> None:
        super().__init__(pool, threads, call_deadline_s, FaultyReadDeparture(faults), tls)
        self._faults = faults

    def completions(self) -> list[Completion]:
        completions = super().completions()
        for completion in completions:
            self._faults.after(completion.id)
        return completions


class Served(msgspec.Struct, frozen=True, eq=False):
    """A read as its lender sees it; numbered by the lender."""

    id: int
    target_pages: Pages


class FaultyBorrower(Borrower):
    """Its read was found to be permitted, and waits before the first byte is taken from a page."""

    faults: Faults
    serial: itertools.count[int]

    def _send(self, window: Window, runs: Runs) -> bool:
        served = Served(next(self.serial), expand(runs[:, 0], runs[:, 1]))
        self.faults.pace()
        self.faults.before(Step.BYTES, served)
        sent = super()._send(window, runs)
        self.faults.after(served.id)
        return sent


class FaultyTcpLender(TcpLender):
    """The product's lender, but for its borrowers."""

    def __init__(self, pool: Pool, host: str, port: int, faults: Faults, tls: Tls | None = None) -> None:
        self._faults = faults
        self._serial = itertools.count(1)
        super().__init__(pool, host, port, tls)

    def _guest(self, stream: Stream) -> Guest:
        guest = FaultyBorrower(stream, self._pool, self._windows, self._key_of)
        guest.faults, guest.serial = self._faults, self._serial
        return guest
