"""Writes that wait at a gate with their bytes in hand, as they would in the queue of a card or a kernel."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from quiesce.kv.runs import CopyRuns
from quiesce.lab.gate import WriteGate
from quiesce.transport.placement import Placement, Placing


class GatedPlacement(Placement):
    """`announce(write id, gate)` is called in the transfer thread when a write has read its source."""

    def __init__(self) -> None:
        self.announce: Callable[[int, WriteGate], None] = lambda write, gate: gate.open()
        self._here = threading.local()

    def copy(self, placing: Placing, runs: CopyRuns) -> None:
        page_bytes = placing.source.layout.page_bytes
        source, target = placing.source.base_address, placing.target.base_address
        places = list(zip(runs.source.tolist(), runs.target.tolist(), runs.pages.tolist(), strict=True))
        in_flight = [ctypes.string_at(source + first * page_bytes, n * page_bytes) for first, _, n in places]
        gate = WriteGate()
        self.announce(placing.write.id, gate)
        gate.wait()
        self._here.torn = gate.torn
        placing.moved = True
        for (_, first, n), data in zip(places, in_flight, strict=True):
            ctypes.memmove(target + first * page_bytes, data, n * page_bytes)

    def stamp(self, placing: Placing) -> None:
        if not self._here.torn:
            super().stamp(placing)

    def write_metadata(self, placing: Placing) -> None:
        if not self._here.torn:
            super().write_metadata(placing)
