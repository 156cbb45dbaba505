"""The reading side: pages come over connections that it makes, and its own threads place them."""

from __future__ import annotations

from quiesce.transport.bounds import refusal
from quiesce.transport.flights import Flight
from quiesce.transport.lanes import LanePuller
from quiesce.transport.pulling import Read
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.intake import Intake
from quiesce.transport.tcp.lanes import TcpLane, TcpLanes

TcpFlight = Flight[TcpLane, Read]
CLOSED = "the puller is closed"


class TcpPuller(TcpLanes[Read, Intake], LanePuller[wire.TcpDescriptor]):
    """Reads pages of peers' pools into `pool` over TCP, over one connection for each thread of a lane.

    It is our own threads that place the bytes, so the end of a read is never unknown:

    ================= ==============================================================================================
    `landed`          every byte came, the lender said that the window was open to the last of them; tags are stamped
    `failed_quiesced` the lender refused or revoked it, the connection broke, its time was over, or we closed. Told by
                      the thread that placed, when it is through: a part may be there, and no more comes
    ================= ==============================================================================================
    """

    abandons = False
    line = Intake

    def close(self) -> None:
        """Break every connection and join every thread: afterwards nothing lands. Idempotent."""
        self._closing.set()
        self._flights.close()
        for line in self._open_lines():
            line.fail(CLOSED)
        super().close()

    def _refusal(self, job: Read, described: wire.TcpDescriptor) -> str:
        return refusal(job, described.pages, self._pool.pages)

    def _line(self, described: wire.TcpDescriptor, line: Intake | None) -> Intake:
        line = super()._line(described, line)
        if self._closing.is_set():  # `close` may have looked before this one was there
            line.fail(CLOSED)
        return line

    def _carry_out(self, line: Intake, flight: TcpFlight) -> None:
        self._flights.land(flight, *line.read(flight.job, may_leave=lambda: self._flights.depart(flight)))
