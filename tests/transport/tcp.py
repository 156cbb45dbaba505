"""A source pool, a target pool and a TCP sender between them, in one process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache

import numpy as np
import pytest

from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.transport.contract import Metadata, Write
from quiesce.transport.departure import Departure
from quiesce.transport.refusals import Refusal
from quiesce.transport.tcp.receiver import TcpHost, TcpReceiver
from quiesce.transport.tcp.sender import TcpSender
from quiesce.trust.contexts import Tls, load_tls
from tests.control.trial import files

from .pools import LAYOUT, SLOTS, SOURCE_PAGES, TAG, TARGET_PAGES, Pools

PEER = Peer(0, Incarnation("a" * 32))
over_tls: ContextVar[bool] = ContextVar("over_tls", default=False)
"""Whether a `Wired` that is made now goes over TLS."""


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


def refusals(host: TcpHost) -> dict[Refusal, int]:
    """What it refused since it was asked last."""
    return {why: n for why, n in host.refusals.take().items() if n}


class Wired(Pools):
    """PEER is watched through a pidfd of this process."""

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
        super().__init__(Pool.private(layout, target_pages, SLOTS), layout, source_pages)
        self.tls = tls or trial()
        self.receiver = TcpReceiver(self.target, tls=self.tls[0])
        self.sender = self.mover = TcpSender(self.source, threads, call_deadline_s, departure, tls=self.tls[1])
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

    def close(self) -> None:
        self.receiver.close()
        self.sender.close()
        self.loop.close()
        super().close()
