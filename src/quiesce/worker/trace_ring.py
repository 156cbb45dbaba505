"""The last steps of a worker's machine, for a bug report: kept as they are, written down when asked for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from quiesce.protocol import trace

MOST_STEPS = 1024
MOST_LINE_CHARS = 2000


Record = Callable[[msgspec.Struct, Iterable[msgspec.Struct]], None]
"""Hears of each step: what was fed, and the effects."""


class TraceRing:
    """Remembers `most` steps. They are frozen values, so remembering costs a reference; `lines` does the writing."""

    def __init__(self, machine: str, most: int = MOST_STEPS) -> None:
        self._machine = machine
        self._steps: deque[tuple[float, int, msgspec.Struct, tuple[msgspec.Struct, ...]]] = deque(maxlen=most)
        self._serial = 0

    def record(self, fact: msgspec.Struct, effects: Iterable[msgspec.Struct]) -> None:
        """A step was taken."""
        self._serial += 1
        self._steps.append((time.time(), self._serial, fact, tuple(effects)))

    def lines(self) -> tuple[str, ...]:
        """The steps, oldest first, as `trace.record` writes them, without anything of a user."""
        return tuple(self._line(*step) for step in self._steps)

    def _line(self, at_s: float, serial: int, fact: msgspec.Struct, effects: tuple[msgspec.Struct, ...]) -> str:
        text = trace.record(at_s, serial, self._machine, fact, effects, trace.PUBLIC)
        return text if len(text) <= MOST_LINE_CHARS else f"{text[:MOST_LINE_CHARS]}..."
