"""The writing side: one thread per target, one batch at a time, and every failure unknown.

The library's -1 does not mean that nothing lands, nor that the source is read no more. So a failed write is
failed_in_flight, and what its tags and metadata were read from is kept for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.errors import HandshakeRefused, UsageError
from quiesce.kv.runs import copy_runs, pack_runs
from quiesce.kv.storage import METADATA_WORDS, Pool, segment_of
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.bounds import refusal
from quiesce.transport.contract import Completion, Target, Write
from quiesce.transport.departure import Departure
from quiesce.transport.flights import Flight, Flights
from quiesce.transport.mooncake.library import (
    MOONCAKE_CAPABILITIES,
    MOST_ENTRIES,
    MooncakeDescriptor,
    decode_descriptor,
    engine,
)

DEFAULT_CALL_DEADLINE_S = 30.0
_WORD_BYTES = 8

Copies = list[tuple[int, int, int]]
"""(source address, target address, bytes)."""


class MooncakeTarget:
    """A peer's pool; `thread` writes into it."""

    def __init__(self, descriptor: MooncakeDescriptor) -> None:
        self.descriptor = descriptor
        self.thread: threading.Thread | None = None

    @property
    def pages(self) -> int:
        return self.descriptor.pages


class MooncakeSender:
    """Writes pages of `pool` through one transfer engine (see `contract.Sender`). `pool` must outlive it."""

    capabilities = MOONCAKE_CAPABILITIES

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure | None = None,
    ) -> None:
        """`threads` means nothing: the library has its own. Raises MachineLacksError."""
        self._pool = pool
        self._departure = departure or Departure()
        self._engine = engine("127.0.0.1", call_deadline_s)
        n_bytes = segment_of(pool.layout, pool.pages, pool.slots).tags_at
        self._engine.register_memory(pool.base_address, n_bytes)
        self._flights: Flights[MooncakeTarget] = Flights(call_deadline_s)
        self._targets: list[MooncakeTarget] = []
        self._kept: list[npt.NDArray[np.uint64]] = []

    @property
    def completion_fd(self) -> int:
        return self._flights.completion_fd

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> MooncakeTarget:
        described = decode_descriptor(descriptor)
        if fds:
            raise HandshakeRefused(f"a mooncake receiver passes no file descriptors, not {len(fds)}")
        if described.layout != self._pool.layout:
            raise HandshakeRefused(f"the peer's pages are {described.layout}, ours are {self._pool.layout}")
        target = MooncakeTarget(described)
        target.thread = threading.Thread(target=self._run, args=(target,), name="mooncake-writes", daemon=True)
        target.thread.start()
        self._targets.append(target)
        return target

    def launch(self, target: Target, write: Write) -> None:
        if not isinstance(target, MooncakeTarget):
            raise UsageError(f"{target!r} was not opened by a mooncake sender")
        self._flights.launch(target, write, len(write.source_pages) * self._pool.layout.page_bytes, target)

    def completions(self) -> list[Completion]:
        return self._flights.completions()

    def close_target(self, target: Target) -> None:
        if isinstance(target, MooncakeTarget):
            self._flights.close_lane(target)

    def close(self) -> None:
        """End what waits, wait for the call under way, and end the engine with whatever it still reads. Idempotent."""
        self._flights.close()
        for target in self._targets:
            if target.thread is not None:
                target.thread.join()
        self._flights.join()
        self._targets = []
        self._engine = None

    # ------------------------------------------------------------ in the threads

    def _run(self, target: MooncakeTarget) -> None:
        while (flight := self._flights.take(target)) is not None:
            self._flights.land(flight, *self._write(flight, target.descriptor))

    def _write(self, flight: Flight[MooncakeTarget], target: MooncakeDescriptor) -> tuple[Outcome, str]:
        write = flight.write
        if refused := refusal(write, self._pool.pages, target.pages, target.slots):
            return Outcome.FAILED_QUIESCED, refused
        self._departure.leave(write)
        if not self._flights.depart(flight):
            return Outcome.FAILED_QUIESCED, "its time was over before it left"
        staging = self._staging(write)
        for copies in (self._pages(write, target), *self._stamps(write, target, staging)):
            if self._copy(target.session, copies):
                self._kept.append(staging)
                return Outcome.FAILED_IN_FLIGHT, "Mooncake reports a failure; bytes may still land"
        return Outcome.LANDED, ""

    def _copy(self, session: str, copies: Copies) -> int:
        """Place copies, batch by batch; not 0 as soon as one fails."""
        for first in range(0, len(copies), MOST_ENTRIES):
            sources, targets, sizes = zip(*copies[first : first + MOST_ENTRIES], strict=True)
            if code := self._engine.batch_transfer_sync_write(session, list(sources), list(targets), list(sizes)):
                return int(code)
        return 0

    def _pages(self, write: Write, target: MooncakeDescriptor) -> Copies:
        page_bytes = self._pool.layout.page_bytes
        runs = copy_runs(write.source_pages, write.target_pages)
        sources = (self._pool.base_address + runs.source * page_bytes).tolist()
        targets = (target.kv_address + runs.target * page_bytes).tolist()
        return list(zip(sources, targets, (runs.pages * page_bytes).tolist(), strict=True))

    def _staging(self, write: Write) -> npt.NDArray[np.uint64]:
        """As many tags as the write stamps at most, and before them the metadata words."""
        tags = len(write.target_pages) * self._pool.layout.layer_groups
        staging = np.full(METADATA_WORDS + tags, write.tag, np.uint64)
        if write.metadata is not None:
            staging[:METADATA_WORDS] = np.array(write.metadata.words, np.uint64)
        return staging

    def _stamps(self, write: Write, target: MooncakeDescriptor, staging: npt.NDArray[np.uint64]) -> list[Copies]:
        """Tags, then the metadata's other words, then its word 0: each only when the one before has landed."""
        base: int = int(staging.ctypes.data)
        row = self._pool.layout.layer_groups * _WORD_BYTES
        runs: list[Any] = np.frombuffer(pack_runs(write.target_pages), "<u4").reshape(-1, 2).tolist()
        tags_at = base + METADATA_WORDS * _WORD_BYTES
        steps = [[(tags_at, target.tags_address + first * row, n * row) for first, n in runs]]
        if write.metadata is not None:
            slot = target.metadata_address + write.metadata.slot * METADATA_WORDS * _WORD_BYTES
            steps.append([(base + _WORD_BYTES, slot + _WORD_BYTES, (METADATA_WORDS - 1) * _WORD_BYTES)])
            steps.append([(base, slot, _WORD_BYTES)])
        return steps
