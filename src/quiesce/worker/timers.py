"""Clocks that the machines ask for. A clock only ever feeds an input; it never frees anything itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable


class Timers:
    """Named clocks by subject (an attempt, a request, ...). Starting one that runs restarts it."""

    def __init__(self) -> None:
        self._running: dict[Hashable, dict[str, asyncio.TimerHandle]] = {}

    def start(self, subject: Hashable, name: str, delay_s: float, fire: Callable[[], None]) -> None:
        named = self._running.setdefault(subject, {})
        if name in named:
            named[name].cancel()
        named[name] = asyncio.get_running_loop().call_later(delay_s, self._fire, subject, name, fire)

    def _fire(self, subject: Hashable, name: str, fire: Callable[[], None]) -> None:
        named = self._running.get(subject, {})
        named.pop(name, None)
        if not named:
            self._running.pop(subject, None)
        fire()

    def stop(self, subject: Hashable) -> None:
        for handle in self._running.pop(subject, {}).values():
            handle.cancel()

    def stop_all(self) -> None:
        for subject in list(self._running):
            self.stop(subject)


def backoff_s(first_s: float, round_: int, most_s: float = 5.0) -> float:
    """`first_s` doubled each round, at most `most_s`."""
    return min(first_s * 2.0 ** min(round_, 16), most_s)
