"""A whole server whose workers are killed: clients get their answer or an error, and it serves again by itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quiesce.control.credentials import peer_credentials
from quiesce.control.stream import dial
from quiesce.errors import PeerUnusable
from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.faults import Held, Hold, LetGo
from quiesce.protocol.dispatch import WorkerSnapshot

from .asking import is_empty

pytestmark = pytest.mark.slow

FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "1024", "--page-size", "4")
QUESTION: dict[str, Any] = {"prompt": "a question", "max_tokens": 32, "temperature": 0, "ignore_eos": True}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(*FLAGS) as cluster:
        yield cluster


async def kill(cluster: Cluster, name: str) -> None:
    sock = await dial(cluster.worker_socket(name))
    with sock:
        os.kill(peer_credentials(sock).pid, signal.SIGKILL)


async def next_life(cluster: Cluster, name: str, before: WorkerSnapshot) -> None:
    """Wait until the supervisor has started a worker again."""
    async with asyncio.timeout(30):
        while await life(cluster, name) in ("", before.incarnation):  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.05)


async def life(cluster: Cluster, name: str) -> str:
    """The incarnation of a worker, "" while nobody answers."""
    try:
        return (await cluster.snapshot(name)).incarnation
    except PeerUnusable:
        return ""


async def answered(client: Client) -> Answer:
    """Ask until the server has recovered; the first good answer."""
    async with asyncio.timeout(60):
        while (answer := await client.ask(QUESTION)).error:
            assert answer.status in (200, 503), answer
            await asyncio.sleep(0.05)
    return answer


async def test_killed_workers_cost_their_requests_only(cluster: Cluster) -> None:
    """Prefill in a transfer, decode in a transfer, decode while it generates: always served again, always clean."""
    async with Client(cluster.url) as client:
        alone = await client.ask(QUESTION)
        assert len(alone.text) > 0
        for name in ("prefill-0", "decode-0"):
            lives = {worker: await cluster.snapshot(worker) for worker in ("prefill-0", "decode-0")}
            faults = await cluster.faults("prefill-0")
            await faults.order(Hold())
            asking = asyncio.create_task(client.ask(QUESTION))
            await faults.wait_for(Held)
            await kill(cluster, name)
            await next_life(cluster, name, lives[name])
            if name == "decode-0":
                await faults.order(LetGo())
            faults.close()
            answer = await asking
            assert answer.error or answer.text == alone.text
            assert (await answered(client)).text == alone.text
        before = await cluster.snapshot("decode-0")
        pieces = client.pieces({**QUESTION, "max_tokens": 900}, broken := Answer())
        await anext(pieces)
        await kill(cluster, "decode-0")
        async for _ in pieces:
            pass
        assert broken.error
        assert not broken.finish
        await next_life(cluster, "decode-0", before)
        assert (await answered(client)).text == alone.text
        for worker in ("prefill-0", "decode-0"):
            await cluster.until(worker, is_empty)
        assert await client.metric("quiesce_worker_restarts_total") == 3
