"""A source pool, a target pool and a sender between them, in one process."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator

import numpy as np

from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.transport.contract import Completion, Metadata, Write
from quiesce.transport.placement import Placement
from quiesce.transport.shm import ShmReceiver, ShmSender, ShmTarget
from quiesce.transport.shm_targets import SegmentTarget

LAYOUT = Layout(layers=2, kv_heads=1, head_dim=8, page_size=4, layer_groups=2)
SOURCE_PAGES = 24
TARGET_PAGES = 32
SLOTS = 4
GUARD = 0xA5
TAG = PageTag(77)
ANYBODY = Peer(0, Incarnation("a" * 32))


def whole_pool(target: ShmTarget | SegmentTarget) -> ShmTarget:
    """What a receiver without segments opens."""
    assert isinstance(target, ShmTarget)
    return target


class Pair:
    """`source` has random bytes, `target` guard bytes; `lent` is the sender's view of `target`."""

    def __init__(self, placement: Placement | None, threads: int, call_deadline_s: float) -> None:
        self.source = Pool.private(LAYOUT, SOURCE_PAGES)
        raw = self.source.page_view()
        raw[...] = np.random.default_rng(3).integers(0, 256, raw.shape, np.uint8)
        self.target = Pool.shared(LAYOUT, TARGET_PAGES, SLOTS)
        self.target.page_view()[...] = GUARD
        self.receiver = ShmReceiver(self.target)
        self.sender = ShmSender(self.source, threads, call_deadline_s, placement)
        descriptor, fds = self.receiver.describe(ANYBODY)
        self.lent = whole_pool(self.sender.open_target(descriptor, fds))

    def launch(self, id_: int, source: list[int], target: list[int], metadata: Metadata | None = None) -> None:
        write = Write(id_, np.array(source, np.int32), np.array(target, np.int32), TAG, metadata)
        self.sender.launch(self.lent, write)

    def wait(self, count: int = 1) -> list[Completion]:
        """The next `count` completions."""
        done: list[Completion] = []
        while len(done) < count:
            assert select.select([self.sender.completion_fd], [], [], 30)[0], f"{len(done)} of {count} completions"
            done += self.sender.completions()
        return done

    def arrived(self, source: list[int], target: list[int]) -> bool:
        """Whether the bytes are where they were told to go, and guard bytes are everywhere else."""
        expected = np.full_like(self.target.page_view(), GUARD)
        expected[target] = self.source.page_view()[source]
        return bool(np.array_equal(expected, self.target.page_view()))

    def stamped(self) -> list[int]:
        """Pages whose every layer group bears TAG."""
        return np.flatnonzero((self.target.tags == TAG).all(axis=1)).tolist()


@contextlib.contextmanager
def pair(placement: Placement | None = None, threads: int = 1, call_deadline_s: float = 30.0) -> Iterator[Pair]:
    made = Pair(placement, threads, call_deadline_s)
    try:
        yield made
    finally:
        made.sender.close()
        made.receiver.close()
        made.source.close()
        made.target.close()
