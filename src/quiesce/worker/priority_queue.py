"""The order in which requests that wait are served: higher priority first, then earlier arrival."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Rank(NamedTuple):
    """Sorts as requests are served. No two have the same `arrival`, so the order is total."""

    unimportance: int
    arrival: int


def rank_of(priority: int, arrival: int) -> Rank:
    """A higher `priority` comes first; among equal ones the lower `arrival`."""
    return Rank(-priority, arrival)


class PriorityQueue(Generic[K, T]):
    """Items by key, in the order of their ranks. `put` says when one arrived: after all that were put before."""

    def __init__(self) -> None:
        self._ranks: list[tuple[Rank, K]] = []
        self._items: dict[K, tuple[Rank, T]] = {}
        self._arrivals = 0

    def put(self, key: K, item: T, priority: int = 0) -> None:
        """Add an item. Raises KeyError when the key is in the queue already."""
        if key in self._items:
            raise KeyError(key)
        rank = rank_of(priority, self._arrivals)
        self._arrivals += 1
        self._items[key] = (rank, item)
        insort(self._ranks, (rank, key), key=_rank)

    @property
    def first(self) -> T:
        """Who is served next. Raises IndexError when nobody waits."""
        return self._items[self._ranks[0][1]][1]

    def first_that(self, able: Callable[[T], bool]) -> T | None:
        """Who is served next among those that can be served now; None when nobody can."""
        return next((item for item in self if able(item)), None)

    def remove(self, key: K) -> T | None:
        """Take an item out, wherever it stands. None when it is not here."""
        rank, item = self._items.pop(key, (None, None))
        if rank is not None:
            self._ranks.remove((rank, key))
        return item

    def pop_first(self) -> T:
        """Take out who is served next. Raises IndexError when nobody waits."""
        return self._items.pop(self._ranks.pop(0)[1])[1]

    def get(self, key: K) -> T | None:
        found = self._items.get(key)
        return None if found is None else found[1]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """In the order of service."""
        return iter([self._items[key][1] for _, key in self._ranks])


def _rank(entry: tuple[Rank, K]) -> Rank:
    return entry[0]
