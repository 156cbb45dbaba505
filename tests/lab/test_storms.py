"""Hundreds of clients that leave at once, again and again, over HTTP: it says no in time, and is whole after."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import time

import pytest

from quiesce.lab.client import Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.faults import Pace
from quiesce.protocol.dispatch import WorkerSnapshot

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS, WAVES = 250, 3
BEGUN = 8
"""So many clients are being answered when all leave."""

FLAGS = (
    *("--model", "tiny", "--context-length", "2048", "--page-size", "16", "--max-prefill-tokens", "64"),
    *(
        "--decode-pool-tokens",
        "8192",
        "--prefill-pool-tokens",
        "8192",
        "--max-queue",
        "16",
        "--queue-per-tenant",
        "100",
    ),
)
POOL_PAGES = 8192 // 16


class Leaver:
    """One client. `status` is what it was answered before it left, 0 when nothing."""

    def __init__(self) -> None:
        self.status = 0
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, port: int, seed: int) -> None:
        """Until the answer's first line came."""
        draw = random.Random(seed)
        prompt = [draw.randrange(256) for _ in range(draw.randrange(100, 1000))]
        body = json.dumps({"prompt": prompt, "max_tokens": 200, "ignore_eos": True, "stream": True}).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        )
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(head.encode() + b"\r\n\r\n" + body)
        self.status = int((await reader.readline()).split()[1])

    def leave(self, *, reset: bool) -> None:
        if self._writer is None:
            return
        if reset:
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()


def is_idle(view: WorkerSnapshot) -> bool:
    idle = view.pages["free"] + view.pages["cached"]
    return idle == sum(view.pages.values()) and not view.rooms and not view.running


async def wave(port: int, first: int) -> set[int]:
    """All come, some are answered, all leave; what they were answered."""
    leavers = [Leaver() for _ in range(CLIENTS)]
    asking = [asyncio.create_task(leaver.ask(port, first + number)) for number, leaver in enumerate(leavers)]
    async with asyncio.timeout(120):
        while sum(leaver.status == 200 for leaver in leavers) < BEGUN:  # noqa: ASYNC110 - any of them
            await asyncio.sleep(0.005)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    for number, leaver in enumerate(leavers):
        leaver.leave(reset=number % 2 == 0)
    return {leaver.status for leaver in leavers}


async def most_held(cluster: Cluster, held: list[int]) -> None:
    """Watch decode's held pages until cancelled, as `quiesce inspect` does."""
    while True:
        view = await cluster.snapshot("decode-0")
        held.append(view.pages["held"] + view.pages["quarantined"])
        await asyncio.sleep(0.01)


async def test_a_storm_leaves_the_server_whole() -> None:
    held, statuses = [0], set[int]()
    async with Cluster(*FLAGS) as cluster, Client(cluster.url) as client:
        faults = await cluster.faults("prefill-0")
        await faults.order(Pace(seed=3, most_s=0.01))
        watching = asyncio.create_task(most_held(cluster, held))
        for number in range(WAVES):
            statuses |= await wave(cluster.port, number * CLIENTS)
        left_s = time.monotonic()
        for worker in ("prefill-0", "decode-0"):
            await cluster.until(worker, is_idle, within_s=60)
        idle_s = time.monotonic()
        answer = await client.ask({"prompt": "and now?", "max_tokens": 4, "temperature": 0, "ignore_eos": True})
        print(
            f"{WAVES} waves of {CLIENTS}: statuses {sorted(statuses - {0})}, "
            f"most pages held {max(held)} of {POOL_PAGES}, "
            f"idle {idle_s - left_s:.2f} s after the last, the next answer took {time.monotonic() - idle_s:.2f} s"
        )
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        assert (answer.error, answer.finish) == ("", "length")
        assert statuses <= {0, 200, 429, 503}
        assert 429 in statuses, "who came when the queue was full was told so"
        assert max(held) < POOL_PAGES
        assert await client.metric("quiesce_releases_total", proof="timeout") == 0
        assert await client.metric("quiesce_unsafe_releases_total") == 0
        assert await client.metric("quiesce_worker_restarts_total") == 0
        assert await client.metric("quiesce_breaker_moves_total") == 0, "clients that leave are nobody's failure"
        assert await client.metric("quiesce_held_page_seconds_total", role="decode") > 0, "holds are seen and counted"
        faults.close()
