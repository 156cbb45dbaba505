"""A lender's pool, a puller's pool and TCP between them, in one process."""

from __future__ import annotations

import asyncio
import os

import numpy as np

from quiesce.ids import PageTag
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.transport.departure import Departure
from quiesce.transport.pulling import Read
from quiesce.transport.tcp.lender import TcpLender
from quiesce.transport.tcp.puller import TcpPuller
from quiesce.trust.contexts import Tls

from .pools import ANYBODY, LAYOUT, SLOTS, SOURCE_PAGES, TAG, TARGET_PAGES, Pools
from .tcp import trial

WINDOW = PageTag(900)


class Pulled(Pools):
    """ANYBODY is the puller, watched through this process's pidfd."""

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
        super().__init__(Pool.private(layout, target_pages, SLOTS), layout, source_pages)
        decode, prefill = tls or trial()
        self.lender = TcpLender(self.source, tls=prefill)
        self.puller = self.mover = TcpPuller(self.target, threads, call_deadline_s, departure, tls=decode)
        self.loop = asyncio.new_event_loop()
        descriptor, _ = self.lender.describe(ANYBODY)
        self.lender.watch(ANYBODY, os.pidfd_open(os.getpid()), lambda _: None, self.loop)
        self.lent = self.puller.open_source(descriptor, [])

    def lend(self, pages: list[int], tag: int = WINDOW) -> None:
        self.lender.lend(PageTag(tag), np.array(pages, np.int32))

    def launch(self, id_: int, source: list[int], target: list[int], window: int = WINDOW, tag: int = TAG) -> None:
        pages = np.array(source, np.int32), np.array(target, np.int32)
        self.puller.launch(self.lent, Read(id_, pages[0], PageTag(window), pages[1], PageTag(tag)))

    def close(self) -> None:
        self.puller.close()
        self.lender.close()
        self.loop.close()
        super().close()
