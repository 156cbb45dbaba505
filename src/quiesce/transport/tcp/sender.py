"""The writing side: each target has its own queue and its own connections, so no peer holds up another."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from quiesce.errors import HandshakeRefused, UsageError
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.bounds import refusal
from quiesce.transport.contract import Completion, Target, Write
from quiesce.transport.departure import Departure
from quiesce.transport.flights import Flight, Flights
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.outbound import Outbound
from quiesce.transport.tcp.receiver import TCP_CAPABILITIES

DEFAULT_CALL_DEADLINE_S = 30.0


class TcpTarget:
    """A peer's pool, reached by connections that are made when they are needed and made anew when they broke."""

    def __init__(self, descriptor: wire.TcpDescriptor) -> None:
        self.descriptor = descriptor
        self.lines: set[Outbound] = set()
        self.threads: list[threading.Thread] = []
        self.closed = False

    @property
    def pages(self) -> int:
        return self.descriptor.pages


class TcpSender:
    """Writes pages of `pool` into peers' pools over TCP (see `contract.Sender`).

    `threads` is the number of connections per target; `call_deadline_s` runs from launch. A running write whose
    deadline passes takes its connection with it: a peer that reads again later finds no second write behind it.
    `pool` must outlive the sender.
    """

    capabilities = TCP_CAPABILITIES

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure | None = None,
    ) -> None:
        self._pool = pool
        self._connections = threads
        self._departure = departure or Departure()
        self._flights: Flights[TcpTarget] = Flights(call_deadline_s, self._give_up)
        self._targets: list[TcpTarget] = []
        self._ending: list[TcpTarget] = []
        self._lock = threading.Lock()  # guards `lines` of targets

    @property
    def completion_fd(self) -> int:
        return self._flights.completion_fd

    @property
    def late_landings(self) -> int:
        """Writes that were answered after their deadline had already ended them as failed_in_flight."""
        return self._flights.late_landings

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> TcpTarget:
        """Read a receiver's description; nothing is connected yet. Raises HandshakeRefused when it does not fit."""
        described = wire.decode_descriptor(descriptor)
        if fds:
            raise HandshakeRefused(f"a tcp receiver passes no file descriptors, not {len(fds)}")
        if described.layout != self._pool.layout:
            raise HandshakeRefused(f"the peer's pages are {described.layout}, ours are {self._pool.layout}")
        target = TcpTarget(described)
        self._targets.append(target)
        for number in range(self._connections):
            thread = threading.Thread(target=self._run, args=(target,), name=f"page-data-{number}", daemon=True)
            target.threads.append(thread)
            thread.start()
        return target

    def launch(self, target: Target, write: Write) -> None:
        """Queue a write and return. Raises UsageError only for a target that this sender did not open."""
        if not isinstance(target, TcpTarget):
            raise UsageError(f"{target!r} was not opened by a tcp sender")
        self._flights.launch(target, write, len(write.source_pages) * self._pool.layout.page_bytes, target)

    def completions(self) -> list[Completion]:
        return self._flights.completions()

    def close_target(self, target: Target) -> None:
        """Nothing more begins; connections close when the writes under way have their replies. Idempotent."""
        if not isinstance(target, TcpTarget) or target not in self._targets:
            return
        self._targets.remove(target)
        self._ending = [each for each in self._ending if any(thread.is_alive() for thread in each.threads)]
        self._ending.append(target)
        self._flights.close_lane(target)

    def close(self) -> None:
        """Join every thread: afterwards nobody reads `pool` (source_fence). Idempotent.

        What the kernel has taken may still land at the peer; its completion says so when no reply came.
        """
        self._flights.close()
        for target in [*self._targets, *self._ending]:
            for thread in target.threads:
                thread.join()
        self._flights.join()
        self._targets, self._ending = [], []

    # ------------------------------------------------------------ in the threads

    def _run(self, target: TcpTarget) -> None:
        line: Outbound | None = None
        while (flight := self._flights.take(target)) is not None:
            line = self._serve(target, line, flight)
        if line is not None:
            self._put_away(target, line)

    def _serve(self, target: TcpTarget, line: Outbound | None, flight: Flight[TcpTarget]) -> Outbound | None:
        """Send one write; the line for the next one."""
        described = target.descriptor
        if refused := refusal(flight.write, self._pool.pages, described.pages, described.slots):
            self._flights.land(flight, Outcome.FAILED_QUIESCED, refused)
            return line
        try:
            self._departure.leave(flight.write)
            line = self._line(target, line)
        except Exception as error:
            self._flights.land(flight, Outcome.FAILED_QUIESCED, f"{error}")
            return None
        line.send(
            flight.write,
            may_leave=lambda: self._flights.depart(flight),
            told=lambda outcome, error: self._flights.land(flight, outcome, error),
        )
        return line

    def _line(self, target: TcpTarget, line: Outbound | None) -> Outbound:
        if line is not None and not line.broken:
            return line
        if line is not None:
            self._put_away(target, line)
        line = Outbound(self._pool, target.descriptor)
        with self._lock:
            target.lines.add(line)
        return line

    def _put_away(self, target: TcpTarget, line: Outbound) -> None:
        line.finish()
        with self._lock:
            target.lines.discard(line)

    def _give_up(self, flight: Flight[TcpTarget]) -> None:
        """From the clock's thread: the deadline of a write under way has passed."""
        with self._lock:
            lines = [line for line in flight.target.lines if line.carries(flight.write)]
        for line in lines:
            line.fail("a write on this connection took too long")
