"""Two pairs, restarted worker by worker under load: no request fails, none is answered wrongly."""

from __future__ import annotations

import asyncio
import sys

import pytest

from quiesce.lab.client import Client
from quiesce.lab.cluster import PRODUCT, Cluster
from quiesce.protocol.dispatch import WorkerSnapshot

from .load import under_load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "2048", "--page-size", "16")
WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")


def is_empty(view: WorkerSnapshot) -> bool:
    idle = view.pages["free"] + view.pages["cached"]
    return idle == sum(view.pages.values()) and not view.rooms and not view.running


async def restart(cluster: Cluster, *words: str) -> tuple[int, str]:
    """`quiesce restart`; its exit code and what it said."""
    directory = cluster.worker_socket("decode-0").parent
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quiesce.cli.main", "restart", "--run-dir", str(directory), *words),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_a_rolling_restart_fails_no_request() -> None:
    async with (
        Cluster(*FLAGS, "--prefill", "2", "--decode", "2", program=PRODUCT) as cluster,
        Client(cluster.url) as client,
        under_load(client, 4) as load,
    ):
        code, said = await restart(cluster)  # as soon as one pair is ready: it waits for the other
        assert code == 0, said
        assert [line for line in said.splitlines() if line.endswith("is back")] == [
            f"quiesce: {name} is back" for name in sorted(WORKERS)
        ]
        await load.progress(6)
        load.stop()
        print(f"{load.right} answers during a restart of {len(WORKERS)} workers")
        assert (dict(load.errors), load.wrong) == ({}, [])
        assert "worker is gone" not in cluster.log, "who stops as told is no warning"
        assert cluster.log.count("has stopped as told; it starts again now") == len(WORKERS)
        for name in WORKERS:
            await cluster.until(name, is_empty, within_s=60)
        assert await client.metric("quiesce_requests_total", outcome="failed") == 0


async def test_a_worker_without_a_stand_in_is_left_alone_unless_told() -> None:
    async with Cluster(*FLAGS, "--decode", "2", program=PRODUCT) as cluster, Client(cluster.url) as client:
        await cluster.all_here("prefill-0", "decode-0", "decode-1")
        before = (await cluster.snapshot("prefill-0")).incarnation
        code, said = await restart(cluster, "prefill-0")
        assert (code, "nobody can stand in for prefill-0" in said) == (2, True), said
        assert (await restart(cluster, "nobody"))[0] == 2
        assert (await cluster.snapshot("prefill-0")).incarnation == before
        assert (await restart(cluster, "decode-1"))[0] == 0
        assert (await restart(cluster, "--anyway", "prefill-0"))[0] == 0
        assert (await cluster.snapshot("prefill-0")).incarnation != before
        assert (await client.ask({"prompt": "still here", "max_tokens": 4})).error == ""
