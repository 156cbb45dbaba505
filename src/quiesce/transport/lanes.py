"""What senders and pullers share that reach their peers by connections: a lane for each, with threads of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from quiesce.errors import HandshakeRefused, UsageError
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.transport.contract import Completion, Target, Write
from quiesce.transport.departure import Departure
from quiesce.transport.descriptors import Descriptor, decode_descriptor, require_fit
from quiesce.transport.flights import Flight, Flights, J
from quiesce.transport.pulling import Read, Source

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


class Lanes(ABC, Generic[D, J]):
    """Carries out what is launched towards each peer; how, says `_run`. `pool` must outlive it."""

    capabilities: Capabilities
    descriptor: type[D]
    sides = ("sender", "target")
    abandons = True
    """See `Flights`."""

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure[J] | None = None,
    ) -> None:
        """`threads` serve each peer; `call_deadline_s` runs from launch. Raises MachineLacksError."""
        self._pool = pool
        self._load(call_deadline_s)
        self._departure = departure or Departure()
        self._flights: Flights[Lane[D], J] = Flights(
            call_deadline_s, self._give_up, abandons=self.abandons, sides=self.sides
        )
        self._threads_of_a_lane = threads
        self._closing = threading.Event()
        self._lanes: list[Lane[D]] = []
        self._ending: list[Lane[D]] = []

    @property
    def completion_fd(self) -> int:
        return self._flights.completion_fd

    @property
    def late_landings(self) -> int:
        """What ended after its deadline had already ended it as failed_in_flight."""
        return self._flights.late_landings

    def completions(self) -> list[Completion]:
        return self._flights.completions()

    def close(self) -> None:
        """Join every thread: afterwards nobody touches `pool`. Idempotent.

        What a sender let leave may still land at the peer; its completion says so when its end is unknown.
        """
        self._closing.set()
        self._flights.close()
        for lane in [*self._lanes, *self._ending]:
            for thread in lane.threads:
                thread.join()
        self._flights.join()
        self._lanes, self._ending = [], []

    def _open(self, descriptor: bytes, fds: Sequence[int]) -> Lane[D]:
        """Read a peer's description and begin its lane. Raises HandshakeRefused when it does not fit."""
        described = decode_descriptor(descriptor, self.descriptor)
        require_fit(described, self._pool.layout, fds)
        self._check(described)
        lane = Lane(described)
        self._lanes.append(lane)
        try:
            for number in range(self._threads_of_a_lane):
                thread = threading.Thread(target=self._run, args=(lane,), name=f"page-data-{number}", daemon=True)
                thread.start()
                lane.threads.append(thread)
        except RuntimeError as error:  # too many threads, for now
            self._end_lane(lane)
            raise HandshakeRefused(f"no thread can be had for the pages of a peer: {error}") from error
        return lane

    def _load(self, call_deadline_s: float) -> None:
        """What moves the bytes of `_pool`. Raises MachineLacksError where that cannot be."""

    def _check(self, described: D) -> None:
        """Raises HandshakeRefused for what else of a description does not fit."""

    def _queue(self, peer: object, job: J, pages: int) -> None:
        """Queue and return. Raises UsageError only for a peer that is none of this transport's."""
        if not isinstance(peer, Lane) or not isinstance(peer.descriptor, self.descriptor):
            raise UsageError(f"{peer!r} was not opened by a {type(self).__name__}")
        self._flights.launch(peer, job, pages * self._pool.layout.page_bytes, peer)

    def _end_lane(self, peer: object) -> None:
        """Nothing more begins; the lane's threads end when what is under way has. Idempotent."""
        if not isinstance(peer, Lane) or peer not in self._lanes:
            return
        self._lanes.remove(peer)
        self._ending = [each for each in self._ending if any(thread.is_alive() for thread in each.threads)]
        self._ending.append(peer)
        self._flights.close_lane(peer)

    @abstractmethod
    def _run(self, lane: Lane[D]) -> None:
        """In a lane's thread: serve it until `Flights.take` gives nothing more."""

    def _give_up(self, flight: Flight[Lane[D], J]) -> None:
        """In the clock's thread: the deadline of a job under way has passed."""


class LaneSender(Lanes[D, Write]):
    """Writes pages of `pool` into peers' pools (see `contract.Sender`)."""

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> Lane[D]:
        """Read a receiver's description. Raises HandshakeRefused when it does not fit."""
        return self._open(descriptor, fds)

    def launch(self, target: Target, write: Write) -> None:
        """Queue a write and return. Raises UsageError only for a target that is none of this transport's."""
        self._queue(target, write, len(write.source_pages))

    def close_target(self, target: Target) -> None:
        """Nothing more begins; the lane's threads end when the writes under way have. Idempotent."""
        self._end_lane(target)


class LanePuller(Lanes[D, Read]):
    """Reads pages of peers' pools into `pool` (see `pulling.Puller`)."""

    sides = ("puller", "source")

    def open_source(self, descriptor: bytes, fds: Sequence[int]) -> Lane[D]:
        """Read a lender's description. Raises HandshakeRefused when it does not fit."""
        return self._open(descriptor, fds)

    def launch(self, source: Source, read: Read) -> None:
        """Queue a read and return. Raises UsageError only for a source that is none of this transport's."""
        self._queue(source, read, len(read.target_pages))

    def close_source(self, source: Source) -> None:
        """Nothing more begins; the lane's threads end when the reads under way have. Idempotent."""
        self._end_lane(source)
