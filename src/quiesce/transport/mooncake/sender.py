"""The writing side: one batch at a time in each thread of a lane, and every failure unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quiesce.kv.storage import segment_of
from quiesce.transport.mooncake.library import MOONCAKE_CAPABILITIES, MOST_ENTRIES, MooncakeDescriptor, engine
from quiesce.transport.onesided import Copies, Line, OneSidedSender


class MooncakeLine(Line):
    """A session of the sender's engine, which ends with its sender. Over TCP it copies from any memory."""

    def __init__(self, engine: Any, session: str) -> None:
        self._engine = engine
        self._session = session

    def copy(self, copies: Copies, wanted: Callable[[], bool]) -> str:
        for first in range(0, len(copies), MOST_ENTRIES):
            batch = copies[first : first + MOST_ENTRIES].T.tolist()
            if not wanted() or self._engine.batch_transfer_sync_write(self._session, *batch):
                return "Mooncake reports a failure; bytes may still land"
        return ""


class MooncakeSender(OneSidedSender[MooncakeDescriptor]):
    """Writes pages of `pool` through one transfer engine."""

    capabilities = MOONCAKE_CAPABILITIES
    descriptor = MooncakeDescriptor

    def _load(self, call_deadline_s: float) -> None:
        self._engine = engine("127.0.0.1", call_deadline_s)
        n_bytes = segment_of(self._pool.layout, self._pool.pages, self._pool.slots).tags_at
        self._engine.register_memory(self._pool.base_address, n_bytes)

    def _connect(self, described: MooncakeDescriptor) -> MooncakeLine:
        return MooncakeLine(self._engine, described.session)

    def close(self) -> None:
        """End what waits, wait for the call under way, and end the engine with whatever it still reads. Idempotent."""
        super().close()
        self._engine = None
