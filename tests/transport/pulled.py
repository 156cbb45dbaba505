"""A lender's pool, a puller's pool and TCP between them, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Iterator

import numpy as np

from quiesce.ids import PageTag
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.transport.contract import Completion
from quiesce.transport.departure import Departure
from quiesce.transport.pulling import Read
from quiesce.transport.tcp.lender import TcpLender
from quiesce.transport.tcp.puller import TcpPuller
from quiesce.trust.contexts import Tls

from .pools import ANYBODY, GUARD, LAYOUT, SLOTS, SOURCE_PAGES, TAG, TARGET_PAGES
from .tcp import trial

WINDOW = PageTag(900)


class Pulled:
    """`source` has random bytes, `target` guard bytes; ANYBODY is the puller, watched through this process's pidfd."""

    def __init__(
        self,
        *,
        departure: Departure[Read] | None = None,
        threads: int = 1,
        call_deadline_s: float = 30.0,
        layout: Layout = LAYOUT,
        source_pages: int = SOURCE_PAGES,
        target_pages: int = TARGET_PAGES,
        tls: tuple[Tls, Tls] | None = None,
    ) -> None:
        self.source = Pool.private(layout, source_pages)
        raw = self.source.page_view()
        raw[...] = np.random.default_rng(3).integers(0, 256, raw.shape, np.uint8)
        self.target = Pool.private(layout, target_pages, SLOTS)
        self.target.page_view()[...] = GUARD
        decode, prefill = tls or trial()
        self.lender = TcpLender(self.source, tls=prefill)
        self.puller = TcpPuller(self.target, threads, call_deadline_s, departure, tls=decode)
        self.loop = asyncio.new_event_loop()
        descriptor, _ = self.lender.describe(ANYBODY)
        self.lender.watch(ANYBODY, os.pidfd_open(os.getpid()), lambda _: None, self.loop)
        self.lent = self.puller.open_source(descriptor, [])

    def lend(self, pages: list[int], tag: int = WINDOW) -> None:
        self.lender.lend(PageTag(tag), np.array(pages, np.int32))

    def launch(self, id_: int, source: list[int], target: list[int], window: int = WINDOW, tag: int = TAG) -> None:
        pages = np.array(source, np.int32), np.array(target, np.int32)
        self.puller.launch(self.lent, Read(id_, pages[0], PageTag(window), pages[1], PageTag(tag)))

    def wait(self, count: int = 1) -> list[Completion]:
        """The next `count` completions."""
        done: list[Completion] = []
        while len(done) < count:
            assert select.select([self.puller.completion_fd], [], [], 30)[0], f"{len(done)} of {count} completions"
            done += self.puller.completions()
        return done

    def arrived(self, source: list[int], target: list[int]) -> bool:
        """Whether the bytes are where they were told to go, and guard bytes are everywhere else."""
        expected = np.full_like(self.target.page_view(), GUARD)
        expected[target] = self.source.page_view()[source]
        return bool(np.array_equal(expected, self.target.page_view()))

    def stamped(self, tag: int = TAG) -> list[int]:
        return np.flatnonzero((self.target.tags == tag).all(axis=1)).tolist()

    def close(self) -> None:
        self.puller.close()
        self.lender.close()
        self.loop.close()
        self.source.close()
        self.target.close()


@contextlib.contextmanager
def pulled(
    *,
    departure: Departure[Read] | None = None,
    threads: int = 1,
    call_deadline_s: float = 30.0,
    layout: Layout = LAYOUT,
    source_pages: int = SOURCE_PAGES,
    target_pages: int = TARGET_PAGES,
    tls: tuple[Tls, Tls] | None = None,
) -> Iterator[Pulled]:
    made = Pulled(
        departure=departure,
        threads=threads,
        call_deadline_s=call_deadline_s,
        layout=layout,
        source_pages=source_pages,
        target_pages=target_pages,
        tls=tls,
    )
    try:
        yield made
    finally:
        made.close()
