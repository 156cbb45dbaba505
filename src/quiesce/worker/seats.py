"""Seats: an index that is both a request's row on decode and its metadata slot in shared memory."""

from __future__ import annotations

from quiesce.errors import invariant


class Seats:
    """A fixed number of seats, lowest first. A held attempt keeps its seat, as it keeps its pages."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._taken: set[int] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        seat = self._free.pop()
        self._taken.add(seat)
        return seat

    def give_back(self, seat: int) -> None:
        invariant(seat in self._taken, "once", f"seat {seat} given back twice")
        self._taken.remove(seat)
        self._free.append(seat)
