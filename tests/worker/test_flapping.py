"""Peers and strangers that come and go again and again: the log says so, and is not filled by it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from quiesce.control.frames import encode
from quiesce.control.stream import FrameStream, dial
from quiesce.ids import Peer
from quiesce.protocol.dispatch import Attach
from quiesce.protocol.messages import Envelope
from quiesce.worker import prefill_streams
from quiesce.worker.decode_streams import DecodeStreams

from .asking import BOTH
from .house import House

FLAPS, MOST_LINES = 250, 40
"""The most for all flaps, of one logger; what is said of them is said 8 times, and then every 10 s."""


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> int:
    return sum(record.name == f"quiesce.worker.{logger}" for record in caplog.records)


async def test_two_workers_that_join_and_lose_each_other_fill_no_log(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And counters leave nothing out."""
    caplog.set_level(logging.INFO)
    hear, cuts, all_cut = DecodeStreams._hear, 0, asyncio.Event()

    async def cut_short(streams: DecodeStreams, decode: Peer, stream: FrameStream[Envelope]) -> None:
        nonlocal cuts
        if cuts < FLAPS:
            asyncio.get_running_loop().call_soon(stream.close)
        else:
            all_cut.set()
        cuts += 1
        await hear(streams, decode, stream)

    monkeypatch.setattr(DecodeStreams, "_hear", cut_short)
    monkeypatch.setattr(prefill_streams, "backoff_s", lambda *_, **__: 0.0)
    await house.prefill()
    await house.decode()
    async with asyncio.timeout(120):
        await all_cut.wait()
    await house.serves()
    for logger in ("prefill_streams", "decode_streams"):
        assert 8 <= lines(caplog, logger) < MOST_LINES, logger


async def spoken(path: Any, said: bytes) -> None:
    """A connection on which that is said, until the other side hangs up."""
    loop = asyncio.get_running_loop()
    with await dial(path) as sock, contextlib.suppress(ConnectionError):
        await loop.sock_sendall(sock, said)
        async with asyncio.timeout(20):
            while await loop.sock_recv(sock, 1 << 16):
                pass


@pytest.mark.parametrize("worker", BOTH)
async def test_nonsense_again_and_again_fills_no_log(
    house: House, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await house.prefill()
    await house.decode()
    for _ in range(FLAPS):
        await spoken(house.members[worker].path, encode(Attach("odd")) + b"\xff" * 8)
        await spoken(house.members[worker].path, b"GET / HTTP/1.1\r\n\r\n")
    await house.serves()
    for logger in ("links", "main"):
        assert 8 <= lines(caplog, logger) < MOST_LINES, logger
