"""A process that plays one side of a pull."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiesce.errors import UsageError
from quiesce.ids import PageTag
from quiesce.kv.storage import Pool
from quiesce.transport.conformance.actor import LaunchingActor, WatchingActor
from quiesce.transport.conformance.candidates import candidate
from quiesce.transport.conformance.patterns import layout_of
from quiesce.transport.pulling import Lender, Puller, Read, Source


class LenderActor(WatchingActor):
    """Owns the source pool and lends it."""

    def open(self, backend: str, page_bytes: int, pages: int, port: int) -> int:
        lender = candidate(backend).lender
        if lender is None:
            raise UsageError(f"{backend} has no lender")
        self._pool = Pool.private(layout_of(page_bytes), pages)
        self._lender = lender(self._pool, "127.0.0.1", port)
        return int(getattr(self._lender, "port", 0))

    @property
    def side(self) -> Lender:
        return self._lender

    def lend(self, tag: int, pages: list[int]) -> None:
        self._lender.lend(PageTag(tag), np.array(pages, np.int32))


class PullerActor(LaunchingActor):
    """Owns a fresh pool and reads into it."""

    def open(self, backend: str, page_bytes: int, pages: int, call_deadline_s: float) -> None:
        puller = candidate(backend).puller
        if puller is None:
            raise UsageError(f"{backend} has no puller")
        self._pool = self._made(lambda: Pool.private(layout_of(page_bytes), pages, 1))
        self._puller = puller(self._pool, 1, call_deadline_s)

    @property
    def side(self) -> Puller:
        return self._puller

    def open_source(self, descriptor: bytes, fds: Sequence[int]) -> None:
        self._source: Source = self._puller.open_source(descriptor, fds)

    def launch(self, id_: int, source: list[int], window: int, target: list[int], tag: int) -> None:
        pages = np.array(source, np.int32), np.array(target, np.int32)
        self._puller.launch(self._source, Read(id_, pages[0], PageTag(window), pages[1], PageTag(tag)))
