"""Simulated time: a heap of what happens next, and the clocks of simulated processes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Any

_MASK = (1 << 64) - 1


class Life:
    """One life of a process, as time sees it: nothing happens to a dead one, and a stopped one is late for all of it.

    `pace` is how fast its clocks go: at 0.5 whatever it waits for takes twice as long. A `worn_out` one ends soon.
    """

    def __init__(self, name: str, pace: float = 1.0) -> None:
        self.name = name
        self.pace = pace
        self.dead = self.worn_out = False
        self.stopped_until_s = 0.0


class Loop:
    """`events` counts what happened, `digest` is a hash of what and when: two runs are the same if theirs are."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._hash = 0
        self._serial = 0
        self._heap: list[tuple[float, int, Life | None, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay_s: float, life: Life | None, call: Callable[..., None], *args: Any) -> None:
        """Call it then, unless `life` is over by then; while `life` is stopped it waits."""
        self._serial += 1
        heappush(self._heap, (self.now_s + delay_s, self._serial, life, call, args))

    def at(self, time_s: float, life: Life | None, call: Callable[..., None], *args: Any) -> None:
        """The same at a time. What is due at one time happens in the order of these calls; a delay would be rounded."""
        self._serial += 1
        heappush(self._heap, (max(time_s, self.now_s), self._serial, life, call, args))

    def run(self, until_s: float) -> None:
        """Let everything happen that is due until then."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            time_s, serial, life, call, args = heappop(heap)
            if life is not None:
                if life.dead:
                    continue
                if life.stopped_until_s > time_s:
                    heappush(heap, (life.stopped_until_s, serial, life, call, args))
                    continue
            self.now_s = time_s
            self.events += 1
            self._hash = hash((self._hash, serial, time_s))
            call(*args)
        self.now_s = max(self.now_s, until_s)

    def note(self, fact: int) -> None:
        """Let something more decide the digest."""
        self._hash = hash((self._hash, fact))

    @property
    def digest(self) -> int:
        """Python's own hash of numbers, which no process salts: 64 bits."""
        return self._hash & _MASK

    @property
    def idle(self) -> bool:
        """Nothing will ever happen any more."""
        return not self._heap


class Clocks:
    """The clocks of one life, by subject and name, at its own pace. Starting one that runs restarts it."""

    def __init__(self, loop: Loop, life: Life) -> None:
        self._loop = loop
        self._life = life
        self._running: dict[Hashable, dict[str, int]] = {}
        self._started = 0

    def start(self, subject: Hashable, name: str, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self._started += 1
        self._running.setdefault(subject, {})[name] = self._started
        args = (subject, name, self._started, call, args)
        self._loop.after(delay_s / self._life.pace, self._life, self._fire, *args)

    def stop(self, subject: Hashable) -> None:
        """Stop every clock of a subject."""
        self._running.pop(subject, None)

    def _fire(
        self, subject: Hashable, name: str, number: int, call: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        named = self._running.get(subject)
        if named is None or named.get(name) != number:
            self._loop.events -= 1  # it was stopped or restarted: nothing happens
            return
        del named[name]
        if not named:
            del self._running[subject]
        call(*args)
