"""A source pool, a target pool and a TCP sender between them, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache

import numpy as np
import pytest

from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.transport.contract import Completion, Metadata, Write
from quiesce.transport.departure import Departure
from quiesce.transport.tcp.receiver import TcpReceiver
from quiesce.transport.tcp.sender import TcpSender
from quiesce.trust.contexts import Tls, load_tls
from tests.control.trial import files

from .pools import GUARD, LAYOUT, SLOTS, SOURCE_PAGES, TAG, TARGET_PAGES

PEER = Peer(0, Incarnation("a" * 32))
over_tls: ContextVar[bool] = ContextVar("over_tls", default=False)
"""Whether what `wired` makes now goes over TLS."""


def both_ways(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a fixture of a module yields whose tests hold in plain and over TLS, by its parameter."""
    token = over_tls.set(request.param == "tls")
    yield request.param
    over_tls.reset(token)


def trial() -> tuple[Tls | None, Tls | None]:
    """What decode and prefill prove who they are with, now."""
    return (shown_by("decode-0"), shown_by("prefill-0")) if over_tls.get() else (None, None)


@cache
def shown_by(name: str, which: str = "ours") -> Tls:
    """What the owner of a trial certificate proves who it is with."""
    told = files(name, which)
    return load_tls(told["tls_cert"], told["tls_key"], told["tls_ca"])


class Wired:
    """`source` has random bytes, `target` guard bytes; PEER is watched through a pidfd of this process."""

    def __init__(
        self,
        *,
        departure: Departure[Write] | None = None,
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
        self.tls = tls or trial()
        self.receiver = TcpReceiver(self.target, tls=self.tls[0])
        self.sender = TcpSender(self.source, threads, call_deadline_s, departure, tls=self.tls[1])
        self.loop = asyncio.new_event_loop()
        self.dead: list[Peer] = []
        descriptor, _ = self.receiver.describe(PEER)
        self.receiver.watch(PEER, os.pidfd_open(os.getpid()), self.dead.append, self.loop)
        self.lent = self.sender.open_target(descriptor, [])

    def arm(self, pages: list[int], slot: int = 0, tag: int = TAG) -> None:
        self.receiver.arm(PageTag(tag), np.array(pages, np.int32), slot)

    def launch(
        self, id_: int, source: list[int], target: list[int], metadata: Metadata | None = None, tag: int = TAG
    ) -> None:
        write = Write(id_, np.array(source, np.int32), np.array(target, np.int32), PageTag(tag), metadata)
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
        return np.flatnonzero((self.target.tags == TAG).all(axis=1)).tolist()

    def close(self) -> None:
        self.receiver.close()
        self.sender.close()
        self.loop.close()
        self.source.close()
        self.target.close()


@contextlib.contextmanager
def wired(
    *,
    departure: Departure[Write] | None = None,
    threads: int = 1,
    call_deadline_s: float = 30.0,
    layout: Layout = LAYOUT,
    source_pages: int = SOURCE_PAGES,
    target_pages: int = TARGET_PAGES,
    tls: tuple[Tls, Tls] | None = None,
) -> Iterator[Wired]:
    made = Wired(
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
