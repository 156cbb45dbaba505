"""The steps in which a write takes effect, in their order: bytes, then tags, then metadata.

`Placement` is a seam: the laboratory passes a subclass that waits before a step, places part of it, or leaves one
out. The product always uses `Placement` itself.
"""

from __future__ import annotations

import numpy as np

from quiesce.kv.runs import CopyRuns
from quiesce.kv.storage import Pool, copy_pages
from quiesce.transport.contract import Write


class Placing:
    """One write as its thread carries it out. Its pages and slot are checked to lie inside both pools.

    `moved` is set before the first byte can have moved; until then a step that raises has changed nothing.
    """

    __slots__ = ("moved", "runs", "source", "target", "write")

    def __init__(self, write: Write, source: Pool, target: Pool, runs: CopyRuns) -> None:
        self.write = write
        self.source = source
        self.target = target
        self.runs = runs
        self.moved = False


class Placement:
    """Plain CPU stores into shared memory.

    Why the order of the calls is the order in which the reader sees their effects: on x86 (TSO) stores become visible
    in program order, and the two exceptions that memmove may use are closed before it returns or returns to ordered
    stores (non-temporal stores end in an sfence in glibc; `rep movsb` is ordered against what follows it). On ARM or
    POWER a store-store barrier (`dmb ishst`) is needed after the bytes, after the tags and before word 0, and a load
    barrier in the reader between reading a tag and the bytes. The lock and the socket between a landed write and the
    reader's check happen to supply them today; rely on that only after testing it there.
    """

    def copy(self, placing: Placing, runs: CopyRuns) -> None:
        """Copy `runs`, normally all of `placing.runs`, without the GIL. Runs are disjoint and may go in any order."""
        placing.moved = placing.moved or len(runs) > 0
        copy_pages(placing.source, placing.target, runs)

    def stamp(self, placing: Placing) -> None:
        """Stamp the tags of all the write's pages, every layer group."""
        placing.moved = True
        placing.target.stamp(placing.write.target_pages, placing.write.tag)

    def write_metadata(self, placing: Placing) -> None:
        """Write the metadata slot, word 0 (the tag) last. Called only for a write that carries metadata."""
        metadata = placing.write.metadata
        if metadata is None:
            return
        placing.moved = True
        row = placing.target.metadata[metadata.slot]
        row[1:] = np.array(metadata.words[1:], np.uint64)
        row[0] = np.uint64(metadata.words[0])
