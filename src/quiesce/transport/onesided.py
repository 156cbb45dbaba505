"""Writes through a library that copies into a peer's memory by address: what of them is the same for every library.

The library's failure does not mean that nothing lands, nor that the source is read no more. So a write that did not
end well is failed_in_flight.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from quiesce.kv.runs import copy_runs, pack_runs
from quiesce.kv.storage import METADATA_WORDS, Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.bounds import refusal
from quiesce.transport.contract import Write
from quiesce.transport.departure import Departure
from quiesce.transport.descriptors import Descriptor
from quiesce.transport.flights import Flight, J
from quiesce.transport.lanes import DEFAULT_CALL_DEADLINE_S, Lane, Lanes, LaneSender

WORD_BYTES = 8
SLOT_BYTES = METADATA_WORDS * WORD_BYTES

Words = npt.NDArray[np.uint64]
Copies = npt.NDArray[np.uint64]
"""One row for each copy: source address, target address, bytes."""

logger = logging.getLogger(__name__)


class PoolAddresses(Descriptor, frozen=True):
    """Where the planes of a receiver's pool lie in its own address space."""

    kv_address: int
    tags_address: int
    metadata_address: int

    def __post_init__(self) -> None:
        ends = self.kv_address + self.pages * self.layout.page_bytes, self.tags_address, self.metadata_address
        if min(self.kv_address, *ends) < 0 or max(ends) >= 2**63:
            raise ValueError("a plane lies where no memory is")


def addresses_of(pool: Pool) -> tuple[int, int, int]:
    """Of the pages, the tags and the metadata."""
    return pool.base_address, int(pool.tags.ctypes.data), int(pool.metadata.ctypes.data)


def steps_of(write: Write, source: Pool, target: PoolAddresses, staging: Words) -> list[Copies]:
    """Bytes, then tags, then the metadata's other words, then its word 0: each only when the one before has landed."""
    base = int(staging.ctypes.data)
    steps = [_pages(write, source, target), _tags(write, target, base + SLOT_BYTES)]
    if write.metadata is not None:
        slot = target.metadata_address + write.metadata.slot * SLOT_BYTES
        steps += [_copies(base + WORD_BYTES, slot + WORD_BYTES, SLOT_BYTES - WORD_BYTES)]
        steps += [_copies(base, slot, WORD_BYTES)]
    return [step for step in steps if len(step)]


def staging_of(write: Write, layer_groups: int) -> Words:
    """What stamps are copied from: the metadata words, and behind them as many tags as the write has."""
    staging = np.full(METADATA_WORDS + len(write.target_pages) * layer_groups, write.tag, np.uint64)
    if write.metadata is not None:
        staging[:METADATA_WORDS] = np.array(write.metadata.words, np.uint64)
    return staging


def _pages(write: Write, source: Pool, target: PoolAddresses) -> Copies:
    page_bytes = source.layout.page_bytes
    runs = copy_runs(write.source_pages, write.target_pages)
    columns = (source.base_address + runs.source * page_bytes, target.kv_address + runs.target * page_bytes)
    return np.stack([*columns, runs.pages * page_bytes], axis=1).astype(np.uint64)


def _tags(write: Write, target: PoolAddresses, tags_at: int) -> Copies:
    """All tags of a write are one number, so their order is free: by place they are the fewest copies.

    A library takes about as long for a copy of 8 bytes as for one of a page.
    """
    row_bytes = target.layout.layer_groups * WORD_BYTES
    runs = np.frombuffer(pack_runs(np.sort(write.target_pages)), "<u4").reshape(-1, 2).astype(np.int64)
    first, sizes = runs[:, 0], runs[:, 1] * row_bytes
    return np.stack([np.full_like(first, tags_at), target.tags_address + first * row_bytes, sizes], axis=1).astype(
        np.uint64
    )


def _copies(source: int, target: int, n_bytes: int) -> Copies:
    return np.array([[source, target, n_bytes]], np.uint64)


class Line:
    """What one thread writes to one peer with, or reads from it. Only that thread uses it.

    A backend says at least how it copies.
    """

    broken = ""
    """Why nothing can be written with it any more, or ""."""

    def lend(self, staging: Words) -> None:
        """`staging` will be copied from."""

    def take_back(self, staging: Words) -> None:
        """It never will be again: all has landed."""

    def copy(self, copies: Copies, wanted: Callable[[], bool]) -> str:
        """Place all `copies` and say "", or why that is not known. Returns soon after `wanted` says no."""
        raise NotImplementedError

    def tend(self) -> float | None:
        """Look after what never ended. In how many seconds to do so again; None: there is nothing."""
        return None

    def close(self) -> None:
        """No source is read any more, and of a line for reading: nothing is placed any more. Idempotent."""


class NoLine(Line):
    """In the place of a line that could not be made."""

    def __init__(self, why: str) -> None:
        self.broken = why


A = TypeVar("A", bound=PoolAddresses)


class OneSided(Lanes[A, J]):
    """`Lanes` whose threads copy by address, each with a line of its own."""

    @abstractmethod
    def _connect(self, described: A) -> Line:
        """A new line, in the thread that will use it; called once, when the lane begins. May raise."""

    @abstractmethod
    def _refusal(self, job: J, described: A) -> str:
        """Why nothing of `job` may be begun, or ""."""

    @abstractmethod
    def _carry_out(self, described: A, line: Line, flight: Flight[Lane[A], J]) -> tuple[Outcome, str]:
        """Copy, to the end of it."""

    def _run(self, lane: Lane[A]) -> None:
        try:
            line: Line = self._connect(lane.descriptor)
        except Exception as error:
            logger.warning("no line to a peer: %s", error)
            line = NoLine(f"{error}")
        try:
            while not self._flights.is_over(lane):
                if flight := self._flights.take(lane, line.tend()):
                    self._flights.land(flight, *self._serve(lane.descriptor, line, flight))
        finally:
            line.close()

    def _serve(self, described: A, line: Line, flight: Flight[Lane[A], J]) -> tuple[Outcome, str]:
        refused = self._refusal(flight.job, described)
        try:
            if not refused:
                self._departure.leave(flight.job)
        except Exception as error:
            refused = f"{error}"
        if refused := refused or line.broken:
            return Outcome.FAILED_QUIESCED, refused
        try:
            return self._carry_out(described, line, flight)
        except Exception as error:  # a fault of ours: how much of it was begun is not known
            logger.exception("transfer %d failed", flight.job.id)
            return Outcome.FAILED_IN_FLIGHT, f"{type(error).__name__}: {error}"


class OneSidedSender(OneSided[A, Write], LaneSender[A]):
    """A `LaneSender` whose threads write by address."""

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        departure: Departure[Write] | None = None,
    ) -> None:
        self._kept: list[Words] = []
        super().__init__(pool, threads, call_deadline_s, departure)

    def _steps(self, write: Write, described: A, staging: Words) -> list[Copies]:
        return steps_of(write, self._pool, described, staging)

    def _refusal(self, job: Write, described: A) -> str:
        return refusal(job, self._pool.pages, described.pages, described.slots)

    def _carry_out(self, described: A, line: Line, flight: Flight[Lane[A], Write]) -> tuple[Outcome, str]:
        staging = staging_of(flight.job, described.layout.layer_groups)
        steps = self._steps(flight.job, described, staging)
        if not self._flights.depart(flight):
            return Outcome.FAILED_QUIESCED, "its time was over before it left"
        if error := self._copy(line, steps, staging, flight):
            self._kept.append(staging)  # for ever: nobody knows when it is read for the last time
            return Outcome.FAILED_IN_FLIGHT, error
        return Outcome.LANDED, ""

    def _copy(self, line: Line, steps: list[Copies], staging: Words, flight: Flight[Lane[A], Write]) -> str:
        try:
            line.lend(staging)
            for copies in steps:
                if error := line.copy(copies, lambda: not self._flights.has_ended(flight)):
                    return error
            line.take_back(staging)
        except Exception as error:
            logger.exception("write %d failed", flight.job.id)
            return f"{type(error).__name__}: {error}"
        return ""
