"""What senders share that reach their peers by connections: a lane for each peer, with threads of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from quiesce.errors import UsageError
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.transport.contract import Completion, Target, Write
from quiesce.transport.departure import Departure
from quiesce.transport.descriptors import Descriptor, decode_descriptor, require_fit
from quiesce.transport.flights import Flight, Flights

DEFAULT_CALL_DEADLINE_S = 30.0

D = TypeVar("D", bound=Descriptor)


class Lane(Generic[D]):
    """A peer's pool. Its threads take from a queue of its own, so no peer holds up another."""

    def __init__(self, descriptor: D) -> None:
        self.descriptor = descriptor
        self.threads: list[threading.Thread] = []

    @property
    def pages(self) -> int:
        return self.descriptor.pages


class LaneSender(ABC, Generic[D]):
    """Writes pages of `pool` into peers' pools (see `contract.Sender`); how, says `_run`. `pool` must outlive it."""

    capabilities: Capabilities
    descriptor: type[D]

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure | None = None,
    ) -> None:
        """`threads` serve each peer; `call_deadline_s` runs from launch."""
        self._pool = pool
        self._departure = departure or Departure()
        self._flights: Flights[Lane[D]] = Flights(call_deadline_s, self._give_up)
        self._threads_of_a_lane = threads
        self._lanes: list[Lane[D]] = []
        self._ending: list[Lane[D]] = []

    @property
    def completion_fd(self) -> int:
        return self._flights.completion_fd

    @property
    def late_landings(self) -> int:
        """Writes that ended after their deadline had already ended them as failed_in_flight."""
        return self._flights.late_landings

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> Lane[D]:
        """Read a receiver's description. Raises HandshakeRefused when it does not fit."""
        described = decode_descriptor(descriptor, self.descriptor)
        require_fit(described, self._pool.layout, fds)
        lane = Lane(described)
        self._lanes.append(lane)
        for number in range(self._threads_of_a_lane):
            thread = threading.Thread(target=self._run, args=(lane,), name=f"page-data-{number}", daemon=True)
            lane.threads.append(thread)
            thread.start()
        return lane

    def launch(self, target: Target, write: Write) -> None:
        """Queue a write and return. Raises UsageError only for a target that is none of this transport's."""
        if not isinstance(target, Lane) or not isinstance(target.descriptor, self.descriptor):
            raise UsageError(f"{target!r} was not opened by a {type(self).__name__}")
        self._flights.launch(target, write, len(write.source_pages) * self._pool.layout.page_bytes, target)

    def completions(self) -> list[Completion]:
        return self._flights.completions()

    def close_target(self, target: Target) -> None:
        """Nothing more begins; the lane's threads end when the writes under way have. Idempotent."""
        if not isinstance(target, Lane) or target not in self._lanes:
            return
        self._lanes.remove(target)
        self._ending = [each for each in self._ending if any(thread.is_alive() for thread in each.threads)]
        self._ending.append(target)
        self._flights.close_lane(target)

    def close(self) -> None:
        """Join every thread: afterwards nobody reads `pool` (source_fence). Idempotent.

        What has left may still land at the peer; its completion says so when its end is unknown.
        """
        self._flights.close()
        for lane in [*self._lanes, *self._ending]:
            for thread in lane.threads:
                thread.join()
        self._flights.join()
        self._lanes, self._ending = [], []

    @abstractmethod
    def _run(self, lane: Lane[D]) -> None:
        """In a lane's thread: serve it until `Flights.take` gives nothing more."""

    def _give_up(self, flight: Flight[Lane[D]]) -> None:
        """In the clock's thread: the deadline of a write under way has passed."""
