"""Reads that wait on command at prefill, before a byte is served. At decode they wait as writes do: `faults`."""

from __future__ import annotations

import itertools

import msgspec

from quiesce.kv.runs import Pages, expand
from quiesce.kv.storage import Pool
from quiesce.lab.faults import Faults, Step
from quiesce.transport.tcp.borrower import Borrower
from quiesce.transport.tcp.inbound import Guest, Runs
from quiesce.transport.tcp.lender import TcpLender
from quiesce.transport.tcp.sockets import Stream
from quiesce.transport.tcp.windows import Window
from quiesce.trust.contexts import Tls


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
