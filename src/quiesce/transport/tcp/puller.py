"""The reading side: each source has its own queue and its own connections, so no peer holds up another."""

from __future__ import annotations

import threading

from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.bounds import refusal
from quiesce.transport.departure import Departure
from quiesce.transport.flights import Flight
from quiesce.transport.lanes import DEFAULT_CALL_DEADLINE_S, Lane, LanePuller
from quiesce.transport.pulling import Read
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.intake import Intake
from quiesce.transport.tcp.receiver import TCP_CAPABILITIES
from quiesce.trust.contexts import Tls

TcpLane = Lane[wire.TcpDescriptor]
TcpFlight = Flight[TcpLane, Read]


class TcpPuller(LanePuller[wire.TcpDescriptor]):
    """Reads pages of peers' pools into `pool` over TCP, over one connection for each thread of a lane.

    It is our own threads that place the bytes, so the end of a read is never unknown:

    ================= ==============================================================================================
    `landed`          every byte came, the lender said that the window was open to the last of them; tags are stamped
    `failed_quiesced` the lender refused or revoked it, the connection broke, its time was over, or we closed. Told by
                      the thread that placed, when it is through: a part may be there, and no more comes
    ================= ==============================================================================================

    A read whose deadline passes takes its connection with it, and with the connection whatever was still to come.
    """

    capabilities = TCP_CAPABILITIES
    descriptor = wire.TcpDescriptor
    abandons = False
    intake = Intake
    """The tests' seam."""

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure[Read] | None = None,
        tls: Tls | None = None,
    ) -> None:
        """With `tls` pages come from no lender that does not send them so, without it from none that does."""
        self._tls = tls
        self._lines: set[Intake] = set()
        self._closing = False
        self._lock = threading.Lock()  # guards both
        super().__init__(pool, threads, call_deadline_s, departure)

    def close(self) -> None:
        """Break every connection and join every thread: afterwards nothing lands. Idempotent."""
        with self._lock:
            self._closing = True
            lines = list(self._lines)
        self._flights.close()
        for line in lines:
            line.fail("the puller is closed")
        super().close()

    def _check(self, described: wire.TcpDescriptor) -> None:
        wire.require_same_way(described, self._tls is not None)

    def _run(self, lane: TcpLane) -> None:
        line: Intake | None = None
        while (flight := self._flights.take(lane)) is not None:
            line = self._serve(lane.descriptor, line, flight)
        if line is not None:
            self._put_away(line)

    def _serve(self, described: wire.TcpDescriptor, line: Intake | None, flight: TcpFlight) -> Intake | None:
        """Carry out one read; the line for the next one."""
        if refused := refusal(flight.job, described.pages, self._pool.pages):
            self._flights.land(flight, Outcome.FAILED_QUIESCED, refused)
            return line
        try:
            self._departure.leave(flight.job)
            line = self._line(described, line)
        except Exception as error:
            self._flights.land(flight, Outcome.FAILED_QUIESCED, f"{error}")
            return None
        self._flights.land(flight, *line.read(flight.job, may_leave=lambda: self._flights.depart(flight)))
        return line

    def _line(self, described: wire.TcpDescriptor, line: Intake | None) -> Intake:
        if line is not None and not line.broken and not line.is_spent:
            return line
        if line is not None:
            self._put_away(line)
        line = self.intake(self._pool, described, self._tls)
        with self._lock:
            self._lines.add(line)
            closing = self._closing
        if closing:
            line.fail("the puller is closed")
        return line

    def _put_away(self, line: Intake) -> None:
        with self._lock:
            self._lines.discard(line)
        line.close()

    def _give_up(self, flight: TcpFlight) -> None:
        with self._lock:
            lines = [line for line in self._lines if line.carries(flight.job)]
        for line in lines:
            line.fail("a read on this connection took too long")
