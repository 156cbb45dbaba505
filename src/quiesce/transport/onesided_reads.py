"""Reads through a library that copies out of a peer's memory by address: what of them is the same for every library."""

from __future__ import annotations

import numpy as np

from quiesce.kv.runs import copy_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.bounds import refusal
from quiesce.transport.flights import Flight
from quiesce.transport.lanes import Lane, LanePuller
from quiesce.transport.onesided import A, Copies, Line, OneSided, PoolAddresses
from quiesce.transport.pulling import Read


class OneSidedPuller(OneSided[A, Read], LanePuller[A]):
    """A `LanePuller` whose threads read by address, each with a line of its own, and stamp what has landed.

    A line that is closed places nothing any more: a backend's `Line.close` says so, or it is none for reading. So a
    read whose connection broke ends as failed_quiesced, when its line is closed; of one that merely takes too long
    nobody knows the end before `close`, which waits for no read.
    """

    def _refusal(self, job: Read, described: A) -> str:
        return refusal(job, described.pages, self._pool.pages)

    def _carry_out(self, described: A, line: Line, flight: Flight[Lane[A], Read]) -> tuple[Outcome, str]:
        read = flight.job
        copies = copies_of(read, described, self._pool)
        if not self._flights.depart(flight):
            return Outcome.FAILED_QUIESCED, "its time was over before it left"
        error = line.copy(copies, lambda: self._is_wanted(flight)) if len(copies) else ""
        if not error:
            self._pool.stamp(read.target_pages, read.tag)
            return Outcome.LANDED, ""
        if line.broken:
            line.close()
            return Outcome.FAILED_QUIESCED, error
        return Outcome.FAILED_IN_FLIGHT, error

    def _is_wanted(self, flight: Flight[Lane[A], Read]) -> bool:
        return not (self._closing.is_set() or self._flights.has_ended(flight))


def copies_of(read: Read, source: PoolAddresses, target: Pool) -> Copies:
    """From the lender's pages to our own."""
    page_bytes = target.layout.page_bytes
    runs = copy_runs(read.source_pages, read.target_pages)
    columns = (source.kv_address + runs.source * page_bytes, target.base_address + runs.target * page_bytes)
    return np.stack([*columns, runs.pages * page_bytes], axis=1).astype(np.uint64)
