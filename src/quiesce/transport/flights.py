"""Writes, or reads, under way: each one ends exactly once, whoever ends it (its thread, its deadline, a close).

A backend's copying threads call `take` and `land`; one clock thread waits for the next deadline. Everything here is
guarded by one lock that is never held while bytes are copied.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion


class Job(Protocol):
    """What is launched: a `contract.Write` or a `pulling.Read`."""

    @property
    def id(self) -> int: ...


T = TypeVar("T")
J = TypeVar("J", bound=Job)


class Stage(Enum):
    WAITING = auto()
    TAKEN = auto()
    RUNNING = auto()
    ENDED = auto()


class Flight(Generic[T, J]):
    """One launched write or read. `stage` belongs to `Flights` and its lock."""

    __slots__ = ("deadline", "job", "lane", "launched_at", "n_bytes", "stage", "target")

    def __init__(self, target: T, job: J, n_bytes: int, deadline_s: float, lane: Hashable) -> None:
        self.target = target
        self.lane = lane
        self.job = job
        self.n_bytes = n_bytes
        self.launched_at = time.monotonic()
        self.deadline = self.launched_at + deadline_s
        self.stage = Stage.WAITING


class Flights(Generic[T, J]):
    """The queues, the clock and the completions of one sender or puller.

    Each *lane* is a queue of its own: who takes from one is not held up by writes of another. A write whose deadline
    passes before it departs ends as failed_quiesced, for nothing of it has begun. One that runs ends as
    failed_in_flight, the clock's thread calls `on_expired` with it, and when its copy comes back after all it only
    raises `late_landings`. Without `abandons` it is only told of, and whoever carries it out ends it, soon and truly.
    """

    def __init__(
        self,
        deadline_s: float,
        on_expired: Callable[[Flight[T, J]], None] = lambda _: None,
        *,
        abandons: bool = True,
        sides: tuple[str, str] = ("sender", "target"),
    ) -> None:
        """`deadline_s` runs from launch; `sides` are what people call our end and the peer's."""
        self.completion_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.late_landings = 0
        self._deadline_s = deadline_s
        self._on_expired = on_expired
        self._abandons = abandons
        self._sides = sides
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._clock = threading.Condition(self._lock)
        self._waiting: dict[Hashable, deque[Flight[T, J]]] = {}
        self._closed_lanes: set[Hashable] = set()
        self._deadlines: deque[Flight[T, J]] = deque()  # in launch order, which is deadline order; ended ones linger
        self._ended: list[Completion] = []
        self._closed = False
        self._clock_idle = False  # it waits without a deadline and must be told of the next one
        self._clock_over = False
        self._clock_thread = threading.Thread(target=self._watch_deadlines, name="transfer-deadlines", daemon=True)
        self._clock_thread.start()

    def launch(self, target: T, job: J, n_bytes: int, lane: Hashable = None) -> None:
        """Queue a job; once its lane or everything is closed it ends at once as failed_quiesced."""
        flight = Flight(target, job, n_bytes, self._deadline_s, lane)
        with self._lock:
            if self._is_over(lane):
                self._end(flight, Outcome.FAILED_QUIESCED, f"the {self._sides[not self._closed]} is closed")
                return
            self._forget_ended()
            self._waiting.setdefault(lane, deque()).append(flight)
            self._deadlines.append(flight)
            self._work.notify_all()
            if self._clock_idle:
                self._clock.notify()

    def take(self, lane: Hashable = None, within_s: float | None = None) -> Flight[T, J] | None:
        """The next write of a lane, waiting for one; whoever takes it lets it depart and lands it.

        None when the lane or everything is closed, or none came `within_s`.
        """
        until_s = None if within_s is None else time.monotonic() + within_s
        with self._lock:
            while not self._is_over(lane):
                if waiting := self._waiting.get(lane):
                    flight = waiting.popleft()
                    flight.stage = Stage.TAKEN
                    return flight
                left_s = None if until_s is None else until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                self._work.wait(left_s)
            return None

    def is_over(self, lane: Hashable = None) -> bool:
        """Whether nothing more of a lane begins."""
        with self._lock:
            return self._is_over(lane)

    def has_ended(self, flight: Flight[T, J]) -> bool:
        """Whether its deadline was faster than whoever carries it out."""
        with self._lock:
            return flight.stage is Stage.ENDED

    def depart(self, flight: Flight[T, J]) -> bool:
        """Asked by whoever took `flight`, before its first byte can move. False: its time is over, let it be."""
        with self._lock:
            if flight.stage is Stage.ENDED:
                return False
            flight.stage = Stage.RUNNING
            return True

    def close_lane(self, lane: Hashable) -> None:
        """Let nothing more of a lane begin; whoever takes from it finds None."""
        with self._lock:
            self._closed_lanes.add(lane)
            self._drop(lambda flight: flight.lane == lane, f"the {self._sides[1]} is closed")
            self._work.notify_all()

    def land(self, flight: Flight[T, J], outcome: Outcome, error: str = "") -> None:
        """The thread that took `flight` is through with it and touches neither source nor target any more."""
        with self._lock:
            if flight.stage is Stage.ENDED:
                self.late_landings += 1
            else:
                self._end(flight, outcome, error)

    def drop_waiting(self, which: Callable[[Flight[T, J]], bool], error: str) -> None:
        """End the waiting writes that `which` names as failed_quiesced: nothing of them has begun."""
        with self._lock:
            self._drop(which, error)

    def completions(self) -> list[Completion]:
        with self._lock:
            ended, self._ended = self._ended, []
            if ended and self.completion_fd >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self.completion_fd)
            return ended

    def close(self) -> None:
        """Let nothing more begin. Running writes go on; their threads find None at their next `take`."""
        with self._lock:
            self._closed = True
            self._drop(lambda _: True, f"the {self._sides[0]} is closed")
            self._work.notify_all()

    def join(self) -> None:
        """After `close`, once no thread holds a flight: stop the clock and close the eventfd."""
        with self._lock:
            self._clock_over = True
            self._clock.notify()
        self._clock_thread.join()
        with self._lock:
            if self.completion_fd >= 0:
                os.close(self.completion_fd)
                self.completion_fd = -1

    def _is_over(self, lane: Hashable) -> bool:
        return self._closed or lane in self._closed_lanes

    def _drop(self, which: Callable[[Flight[T, J]], bool], error: str) -> None:
        dropped = [flight for waiting in self._waiting.values() for flight in waiting if which(flight)]
        kept = {
            lane: deque(flight for flight in waiting if not which(flight)) for lane, waiting in self._waiting.items()
        }
        self._waiting = {lane: waiting for lane, waiting in kept.items() if waiting}
        for flight in dropped:
            self._end(flight, Outcome.FAILED_QUIESCED, error)

    def _end(self, flight: Flight[T, J], outcome: Outcome, error: str = "") -> None:
        flight.stage = Stage.ENDED
        seconds = time.monotonic() - flight.launched_at
        self._ended.append(Completion(flight.job.id, outcome, flight.n_bytes, seconds, error))
        if len(self._ended) == 1 and self.completion_fd >= 0:
            os.eventfd_write(self.completion_fd, 1)

    def _forget_ended(self) -> None:
        while self._deadlines and self._deadlines[0].stage is Stage.ENDED:
            self._deadlines.popleft()

    def _watch_deadlines(self) -> None:
        with self._lock:
            while not self._clock_over:
                self._forget_ended()
                left_s = self._deadlines[0].deadline - time.monotonic() if self._deadlines else None
                if left_s is not None and left_s <= 0:
                    expired = self._deadlines.popleft()
                    if self._expire(expired):
                        self._tell_expired(expired)
                else:
                    self._clock_idle = left_s is None
                    self._clock.wait(left_s)

    def _expire(self, flight: Flight[T, J]) -> bool:
        """End a job whose time is over; whether it was running."""
        if flight.stage is Stage.RUNNING:
            if self._abandons:
                self._end(flight, Outcome.FAILED_IN_FLIGHT, f"not done after {self._deadline_s:g} s; it may still land")
            return True
        if flight.stage is Stage.WAITING:
            self._waiting[flight.lane].remove(flight)
        self._end(flight, Outcome.FAILED_QUIESCED, f"did not begin within {self._deadline_s:g} s")
        return False

    def _tell_expired(self, flight: Flight[T, J]) -> None:
        self._lock.release()
        try:
            self._on_expired(flight)
        finally:
            self._lock.acquire()
