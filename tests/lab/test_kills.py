"""kill -9 of each process under load: back at the same address, nothing answered wrongly, nothing leaked.

How long it took is printed (`-s`), not asserted: a machine that runs other tests proves nothing about it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import PRODUCT, Cluster
from quiesce.lab.faults import Held, Hold, LetGo
from quiesce.protocol.dispatch import WorkerSnapshot

from .load import GREEDY, Load, under_load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "2048", "--page-size", "16")
CHILDREN = ("prefill-0", "decode-0", "router")


def is_empty(view: WorkerSnapshot) -> bool:
    idle = view.pages["free"] + view.pages["cached"]
    return idle == sum(view.pages.values()) and not view.rooms and not view.running


async def killed(cluster: Cluster, load: Load, name: str) -> float:
    """Kill a process; seconds until the next right answer that began after its death was known."""
    before, killed_s = cluster.pid(name), time.monotonic()
    os.kill(before, signal.SIGKILL)
    async with asyncio.timeout(120):
        while cluster.pid(name) in (0, before):  # noqa: ASYNC110 - another process starts it
            await asyncio.sleep(0.01)
    await load.progress(2 * len(load.asked))  # of each client's, one at least was asked after it
    return load.first_after(killed_s, load.last_error_s) - killed_s


async def test_every_process_may_be_killed() -> None:
    """One pair, without a spare: whoever dies, the same address serves again and answers are right."""
    async with (
        Cluster(*FLAGS, program=PRODUCT) as cluster,
        Client(cluster.url) as client,
        under_load(client, 4) as load,
    ):
        for name in CHILDREN:
            print(f"{name} killed: serving again after {await killed(cluster, load, name):.2f} s")
        load.stop()
        print(f"{load.right} right answers; errors: {dict(load.errors)}")
        assert load.wrong == []
        await cluster.all_here("prefill-0", "decode-0")
        for name in ("prefill-0", "decode-0"):
            await cluster.until(name, is_empty, within_s=60)
        assert await client.metric("quiesce_unsafe_releases_total") == 0
        assert await client.metric("quiesce_tag_mismatches_total") == 0


async def test_a_spare_takes_the_place_of_who_is_killed() -> None:
    """One pair, a spare for whoever dies: another life in the spare's process, empty pools, and the same answers."""
    async with (
        Cluster(*FLAGS, "--spare", "model", program=PRODUCT) as cluster,
        Client(cluster.url) as client,
        under_load(client, 4) as load,
    ):
        lives = set()
        for name in (*CHILDREN, "prefill-0", "decode-0"):
            spare = await _spare(cluster, "spare-router" if name == "router" else "spare")
            served_s = await killed(cluster, load, name)
            print(f"{name} killed: serving again after {served_s:.2f} s, by the spare")
            assert cluster.pid(name) == spare, "the spare's process is the new life"
            if name != "router":
                lives.add((await cluster.snapshot(name)).incarnation)
        load.stop()
        print(f"{load.right} right answers; errors: {dict(load.errors)}")
        assert load.wrong == []
        assert len(lives) == 4, "every life has its own incarnation, also one that began as a spare"
        await cluster.all_here("prefill-0", "decode-0")
        for name in ("prefill-0", "decode-0"):
            await cluster.until(name, is_empty, within_s=60)
        assert await client.metric("quiesce_unsafe_releases_total") == 0
        assert await client.metric("quiesce_tag_mismatches_total") == 0


async def _spare(cluster: Cluster, name: str) -> int:
    """The process that waits, once there is one."""
    async with asyncio.timeout(120):
        while not (pid := cluster.pid(name)):  # noqa: ASYNC110 - another process starts it
            await asyncio.sleep(0.02)
    return pid


@pytest.mark.parametrize("victim", ["prefill-0", "decode-0"])
async def test_with_two_pairs_a_death_is_a_retry(victim: str) -> None:
    """What had not begun to answer is answered elsewhere; who reads a stream sees how it ended."""
    async with (
        Cluster(*FLAGS, "--prefill", "2", "--decode", "2", "--retries", "2", program=PRODUCT) as cluster,
        Client(cluster.url) as client,
        under_load(client, 4) as load,
    ):
        await cluster.all_here("prefill-0", "prefill-1", "decode-0", "decode-1")
        print(f"{victim} killed: next answer after {await killed(cluster, load, victim):.2f} s")
        load.stop()
        print(f"{load.right} right answers; errors: {dict(load.errors)}")
        assert load.wrong == []
        assert not (victim.startswith("prefill") and load.errors), "prefill had begun no answer"
        assert all("worker_lost" in error for error in load.errors)
        await cluster.all_here("prefill-0", "prefill-1", "decode-0", "decode-1")
        for name in ("prefill-0", "prefill-1", "decode-0", "decode-1"):
            await cluster.until(name, is_empty, within_s=60)


async def _freeze_one_in_a_transfer(
    cluster: Cluster, client: Client, asked: dict[str, Any]
) -> tuple[str, asyncio.Task[Answer]]:
    """Ask, stop the prefill worker whose first write waits, and let the write go on as soon as its process does."""
    controls = {name: await cluster.faults(name) for name in ("prefill-0", "prefill-1")}
    for control in controls.values():
        await control.order(Hold())
    asking = asyncio.create_task(client.ask(asked))
    waits = {asyncio.create_task(control.wait_for(Held)): name for name, control in controls.items()}
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    frozen = waits[done.pop()]
    os.kill(cluster.pid(frozen), signal.SIGSTOP)
    for wait in pending:
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        await controls[waits[wait]].order(LetGo())
    controls[frozen].tell(LetGo())
    return frozen, asking


async def test_a_frozen_prefill_costs_a_retry_and_a_hold_that_names_it() -> None:
    """SIGSTOP in a transfer: the client is answered by the other pair, decode's pages wait for the writer's ack."""
    flags = ("--prefill", "2", "--decode", "1", "--hold-deadline-s", "0.2", "--quarantine-budget", "1")
    async with Cluster(*FLAGS, *flags) as cluster, Client(cluster.url) as client:
        await cluster.all_here("prefill-0", "prefill-1", "decode-0")
        asked = {"prompt": [i % 251 for i in range(300)], "max_tokens": 8, **GREEDY}
        frozen, asking = await _freeze_one_in_a_transfer(cluster, client, asked)
        answer = await asking
        assert (answer.error, answer.finish) == ("", "length")
        view = await cluster.until("decode-0", lambda view: [room.state for room in view.rooms] == ["quarantined"])
        assert view.rooms[0].awaiting
        os.kill(cluster.pid(frozen), signal.SIGCONT)
        for name in ("prefill-0", "prefill-1", "decode-0"):
            await cluster.until(name, is_empty, within_s=60)
        assert await client.metric("quiesce_releases_total", role="decode", proof="drained") == 1
        assert await client.metric("quiesce_unsafe_releases_total") == 0
