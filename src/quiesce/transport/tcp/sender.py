"""The writing side: pages go out over connections that it makes, and the receiver says how each write ended."""

from __future__ import annotations

from quiesce.transport.bounds import refusal
from quiesce.transport.contract import Write
from quiesce.transport.flights import Flight
from quiesce.transport.lanes import LaneSender
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.lanes import TcpLane, TcpLanes
from quiesce.transport.tcp.outbound import Outbound


class TcpSender(TcpLanes[Write, Outbound], LaneSender[wire.TcpDescriptor]):
    """Writes pages of `pool` into peers' pools over TCP, over one connection for each thread of a lane.

    A running write whose deadline passes takes its connection with it: a peer that reads again later finds no second
    write behind it.
    """

    line = Outbound

    def _refusal(self, job: Write, described: wire.TcpDescriptor) -> str:
        return refusal(job, self._pool.pages, described.pages, described.slots)

    def _carry_out(self, line: Outbound, flight: Flight[TcpLane, Write]) -> None:
        line.send(
            flight.job,
            may_leave=lambda: self._flights.depart(flight),
            told=lambda outcome, error: self._flights.land(flight, outcome, error),
        )
