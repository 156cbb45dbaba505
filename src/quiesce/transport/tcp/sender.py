"""The writing side: each target has its own queue and its own connections, so no peer holds up another."""

from __future__ import annotations

import threading

from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.bounds import refusal
from quiesce.transport.contract import Write
from quiesce.transport.departure import Departure
from quiesce.transport.flights import Flight
from quiesce.transport.lanes import DEFAULT_CALL_DEADLINE_S, Lane, LaneSender
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.outbound import Outbound
from quiesce.transport.tcp.receiver import TCP_CAPABILITIES
from quiesce.trust.contexts import Tls

TcpLane = Lane[wire.TcpDescriptor]
TcpFlight = Flight[TcpLane, Write]


class TcpSender(LaneSender[wire.TcpDescriptor]):
    """Writes pages of `pool` into peers' pools over TCP, over one connection for each thread of a lane.

    Connections are made when they are needed, and made anew when they broke. A running write whose deadline passes
    takes its connection with it: a peer that reads again later finds no second write behind it.
    """

    capabilities = TCP_CAPABILITIES
    descriptor = wire.TcpDescriptor

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure[Write] | None = None,
        tls: Tls | None = None,
    ) -> None:
        """With `tls` pages go to no receiver that does not take them so, without it to none that does."""
        self._tls = tls
        self._lines: set[Outbound] = set()
        self._lock = threading.Lock()  # guards the lines
        super().__init__(pool, threads, call_deadline_s, departure)

    def _check(self, described: wire.TcpDescriptor) -> None:
        wire.require_same_way(described, self._tls is not None)

    def _run(self, lane: TcpLane) -> None:
        line: Outbound | None = None
        while (flight := self._flights.take(lane)) is not None:
            line = self._serve(lane.descriptor, line, flight)
        if line is not None:
            self._put_away(line)

    def _serve(self, described: wire.TcpDescriptor, line: Outbound | None, flight: TcpFlight) -> Outbound | None:
        """Send one write; the line for the next one."""
        if refused := refusal(flight.job, self._pool.pages, described.pages, described.slots):
            self._flights.land(flight, Outcome.FAILED_QUIESCED, refused)
            return line
        try:
            self._departure.leave(flight.job)
            line = self._line(described, line)
        except Exception as error:
            self._flights.land(flight, Outcome.FAILED_QUIESCED, f"{error}")
            return None
        line.send(
            flight.job,
            may_leave=lambda: self._flights.depart(flight),
            told=lambda outcome, error: self._flights.land(flight, outcome, error),
        )
        return line

    def _line(self, described: wire.TcpDescriptor, line: Outbound | None) -> Outbound:
        if line is not None and not line.broken and not line.is_spent:
            return line
        if line is not None:
            self._put_away(line)
        line = Outbound(self._pool, described, self._tls)
        with self._lock:
            self._lines.add(line)
        return line

    def _put_away(self, line: Outbound) -> None:
        line.finish()
        with self._lock:
            self._lines.discard(line)

    def _give_up(self, flight: TcpFlight) -> None:
        with self._lock:
            lines = [line for line in self._lines if line.carries(flight.job)]
        for line in lines:
            line.fail("a write on this connection took too long")
