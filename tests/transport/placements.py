"""What holds, cuts or breaks a write or a read at a chosen step."""

from __future__ import annotations

import threading
from typing import Any

from quiesce.kv.runs import CopyRuns
from quiesce.transport.departure import Departure
from quiesce.transport.placement import Placement, Placing

LONG_S = 60.0  # no wait of a passing test comes near


class Gate:
    """Whoever comes to it waits until `let_go`; `reached` is set by everybody who got there."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        if not self.let_go.wait(LONG_S):
            raise TimeoutError("nobody let it go")


class Held(Gate, Placement):
    """Waits before the first byte of each write."""

    def copy(self, placing: Placing, runs: CopyRuns) -> None:
        self.wait()
        super().copy(placing, runs)


class HeldBeforeTags(Gate, Placement):
    """Lands all bytes of each write and waits before its tags."""

    def stamp(self, placing: Placing) -> None:
        self.wait()
        super().stamp(placing)


class HeldDeparture(Gate, Departure[Any]):
    """Waits before a write, or a read, leaves."""

    def leave(self, _: object, /) -> None:
        self.wait()


class Broken(Placement):
    """Fails before any byte, after the first run, or before the tags."""

    def __init__(self, at: str) -> None:
        self.at = at

    def copy(self, placing: Placing, runs: CopyRuns) -> None:
        if self.at == "bytes":
            raise RuntimeError("broken before bytes")
        if self.at == "torn":
            super().copy(placing, runs[:1])
            raise RuntimeError("torn")
        super().copy(placing, runs)

    def stamp(self, placing: Placing) -> None:
        if self.at == "tags":
            raise RuntimeError("broken before tags")
        super().stamp(placing)
