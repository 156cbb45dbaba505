"""A source pool, a target pool and what moves pages between them, in one process; here over shared memory."""

from __future__ import annotations

import select
from typing import Self

import numpy as np

from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.transport.contract import Completion, Metadata, Sender, Write
from quiesce.transport.placement import Placement
from quiesce.transport.pulling import Puller
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


class Pools:
    """A source pool of random bytes, a target pool of guard bytes, and what moves pages from one to the other.

    Leaving it as a context closes it all.
    """

    mover: Sender | Puller

    def __init__(self, target: Pool, layout: Layout = LAYOUT, source_pages: int = SOURCE_PAGES) -> None:
        self.source = Pool.private(layout, source_pages)
        raw = self.source.page_view()
        raw[...] = np.random.default_rng(3).integers(0, 256, raw.shape, np.uint8)
        self.target = target
        self.target.page_view()[...] = GUARD

    def wait(self, count: int = 1) -> list[Completion]:
        """The next `count` completions."""
        done: list[Completion] = []
        while len(done) < count:
            assert select.select([self.mover.completion_fd], [], [], 30)[0], f"{len(done)} of {count} completions"
            done += self.mover.completions()
        return done

    def arrived(self, source: list[int], target: list[int]) -> bool:
        """Whether the bytes are where they were told to go, and guard bytes are everywhere else."""
        expected = np.full_like(self.target.page_view(), GUARD)
        expected[target] = self.source.page_view()[source]
        return bool(np.array_equal(expected, self.target.page_view()))

    def stamped(self, tag: int = TAG) -> list[int]:
        """Pages whose every layer group bears `tag`."""
        return np.flatnonzero((self.target.tags == tag).all(axis=1)).tolist()

    def close(self) -> None:
        self.source.close()
        self.target.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Pair(Pools):
    """`lent` is the sender's view of `target`."""

    def __init__(self, placement: Placement | None = None, threads: int = 1, call_deadline_s: float = 30.0) -> None:
        super().__init__(Pool.shared(LAYOUT, TARGET_PAGES, SLOTS))
        self.receiver = ShmReceiver(self.target)
        self.sender = self.mover = ShmSender(self.source, threads, call_deadline_s, placement)
        descriptor, fds = self.receiver.describe(ANYBODY)
        self.lent = whole_pool(self.sender.open_target(descriptor, fds))

    def launch(self, id_: int, source: list[int], target: list[int], metadata: Metadata | None = None) -> None:
        write = Write(id_, np.array(source, np.int32), np.array(target, np.int32), TAG, metadata)
        self.sender.launch(self.lent, write)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        super().close()
