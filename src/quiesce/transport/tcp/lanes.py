"""What the writing and the reading side share: each peer has its own queue and its own connections."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, Generic, TypeVar

from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.departure import Departure
from quiesce.transport.flights import Flight, J
from quiesce.transport.lanes import DEFAULT_CALL_DEADLINE_S, Lane, Lanes
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.line import TcpLine
from quiesce.transport.tcp.receiver import TCP_CAPABILITIES
from quiesce.trust.contexts import Tls

TcpLane = Lane[wire.TcpDescriptor]
L = TypeVar("L", bound=TcpLine[Any])


class TcpLanes(Lanes[wire.TcpDescriptor, J], Generic[J, L]):
    """`Lanes` whose threads have a connection each: made when it is needed, and made anew when it broke.

    What is under way when its deadline passes takes its connection with it.
    """

    capabilities = TCP_CAPABILITIES
    descriptor = wire.TcpDescriptor
    line: type[L]

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure[J] | None = None,
        tls: Tls | None = None,
    ) -> None:
        """With `tls` pages travel to and from no peer that does not have them so, without it none that does."""
        self._tls = tls
        self._lines: set[L] = set()
        self._lock = threading.Lock()  # guards the lines
        super().__init__(pool, threads, call_deadline_s, departure)

    @abstractmethod
    def _refusal(self, job: J, described: wire.TcpDescriptor) -> str:
        """Why nothing of `job` may be begun, or ""."""

    @abstractmethod
    def _carry_out(self, line: L, flight: Flight[TcpLane, J]) -> None:
        """Move the pages over a connection that is whole; the flight is landed, now or when the peer has answered."""

    def _check(self, described: wire.TcpDescriptor) -> None:
        wire.require_same_way(described, self._tls is not None)

    def _run(self, lane: TcpLane) -> None:
        line: L | None = None
        try:
            while (flight := self._flights.take(lane)) is not None:
                line = self._serve(lane.descriptor, line, flight)
        finally:
            if line is not None:
                self._put_away(line)

    def _serve(self, described: wire.TcpDescriptor, line: L | None, flight: Flight[TcpLane, J]) -> L | None:
        """Carry out one job; the line for the next one."""
        if refused := self._held_back(flight.job, described):
            self._flights.land(flight, Outcome.FAILED_QUIESCED, refused)
            return line
        try:
            line = self._line(described, line)
        except Exception as error:
            self._flights.land(flight, Outcome.FAILED_QUIESCED, f"{error}")
            return None  # the one from before was put away
        self._carry_out(line, flight)
        return line

    def _held_back(self, job: J, described: wire.TcpDescriptor) -> str:
        """Why `job` does not leave, or "". It has touched no line."""
        try:
            if not (refused := self._refusal(job, described)):
                self._departure.leave(job)
        except Exception as error:
            return f"{error}"
        return refused

    def _line(self, described: wire.TcpDescriptor, line: L | None) -> L:
        if line is not None and not line.broken and not line.is_spent:
            return line
        if line is not None:
            self._put_away(line)
        line = self.line(self._pool, described, self._tls)
        with self._lock:
            self._lines.add(line)
        return line

    def _put_away(self, line: L) -> None:
        try:
            line.close()
        finally:
            with self._lock:
                self._lines.discard(line)

    def _give_up(self, flight: Flight[TcpLane, J]) -> None:
        for line in self._open_lines():
            if line.carries(flight.job):
                line.fail("a transfer on this connection took too long")

    def _open_lines(self) -> list[L]:
        with self._lock:
            return list(self._lines)
