"""Traces of real workers: with real writes, threads, sockets and processes, every step is one of the model's."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
import pytest_asyncio

from quiesce.cli.bundle import write_bundle
from quiesce.lab.client import Client
from quiesce.lab.cluster import PRODUCT, Cluster
from quiesce.lab.trace.command import command
from quiesce.lab.trace.files import lines_of
from quiesce.lab.trace.replay import MATCHED, judge
from quiesce.worker.landing_space import landing_pool, landing_space
from tests.lab.load import Load, under_load
from tests.lab.trace.written import read
from tests.worker.asking import BOTH, is_empty
from tests.worker.house import House
from tests.worker.rig import prompt_ids

FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "2048", "--page-size", "16")


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    with tempfile.TemporaryDirectory(prefix="q") as directory:
        house = House(Path(directory))
        yield house
        await house.close()


async def test_two_workers_that_serve_abort_and_lose_their_stream(house: House) -> None:
    prefill = await house.prefill()
    await house.decode()
    await house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=3).end("decode-0")
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=3)
    await prefill.writes.held()
    for stream in list(prefill.worker.streams._streams.values()):
        stream.close()
    await ask.end("decode-0")
    await house.desk.until(lambda: house.desk.peers["decode-0"] == ())
    await house.desk.paired("decode-0", "prefill-0")
    prefill.writes.let_go()
    await house.empty()
    await house.desk.ask(prompt_ids(14, 3), *BOTH, max_tokens=3).end("decode-0")
    await house.empty()
    files = {name: list(await house.desk.trace(name)) for name in BOTH}
    verdict = judge(read(files), idle=True)
    assert verdict.breaches == []
    assert set(verdict.messages) == {MATCHED}
    done = {"reserve", "publish", "bind", "launch", "landed", "send_done", "commit", "cache", "finish"}
    failed = {"abort", "hear_abort", "send_ack", "hear_ack", "release", "reuse_source"}
    assert done | failed <= set(verdict.actions)
    files["prefill-0"] = [line.replace("landed", "failed_in_flight") for line in files["prefill-0"]]
    assert "poisoned_is_not_acked" in judge(read(files)).rules


async def test_two_workers_of_which_decode_reads(house: House) -> None:
    """A served prompt, then a client that leaves while its read is under way."""
    pull: dict[str, Any] = {"transport": "tcp", "transfer": "pull"}
    await house.prefill(**pull)
    decode = await house.decode(**pull)
    await house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=3).end("decode-0")
    await house.empty()
    decode.writes.hold()
    ask = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=3)
    await decode.writes.held()
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("prefill-0", is_empty)
    decode.writes.let_go()
    await house.empty()
    files = {name: list(await house.desk.trace(name)) for name in BOTH}
    verdict = judge(read(files), idle=True)
    assert verdict.breaches == []
    assert set(verdict.messages) == {MATCHED}
    done = {"reserve", "offer", "launch", "landed", "commit", "finish", "take_back", "reuse_source"}
    assert done | {"abort", "send_ack", "release", "revoke"} <= set(verdict.actions)
    files["decode-0"] = [line.replace("failed_quiesced", "failed_in_flight") for line in files["decode-0"]]
    assert "unknown_fate_poisons" in judge(read(files)).rules


async def aborted(client: Client, load: Load) -> None:
    """Clients ask for long prompts and leave, until one of them left in the middle of a hand-off."""
    async with asyncio.timeout(120):
        while not await client.metric("quiesce_aborts_sent_total"):
            asking = asyncio.create_task(client.ask({"prompt": [load.right % 251] * 1500, "max_tokens": 20}))
            await load.progress(1)
            asking.cancel()


@pytest.mark.parametrize("where", [landing_space, landing_pool])
async def test_staged_leases_are_others_while_their_answers_go_on(house: House, where: Any) -> None:
    """Segments all count from 0, and landing pages come back at commit: neither is an alias."""
    prefill = await house.prefill(landing="staged")
    await house.decode(landing="staged", landing_space=where)
    long = house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=200)
    await long.said(1)
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=3)
    await prefill.writes.held()
    house.desk.cancel(ask, *BOTH)
    await house.desk.ask(prompt_ids(14, 3), *BOTH, max_tokens=3).end("decode-0")
    prefill.writes.let_go()
    await long.end("decode-0")
    await house.empty()
    verdict = judge(read({name: list(await house.desk.trace(name)) for name in BOTH}), idle=True)
    assert verdict.breaches == []
    assert set(verdict.messages) == {MATCHED}


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_fleet_under_load_with_aborts_and_a_kill(tmp_path: Path) -> None:
    """Bundles taken in the middle of it all, of rings that have turned over: nothing is blamed that was right."""
    async with (
        Cluster(*FLAGS, "--prefill", "2", "--decode", "2", "--retries", "2", program=PRODUCT) as cluster,
        Client(cluster.url) as client,
        under_load(client, 4) as load,
    ):
        run_dir = cluster.worker_socket("decode-0").parent
        await aborted(client, load)
        await write_bundle(run_dir, tmp_path / "busy.tar.gz")
        os.kill(cluster.pid("prefill-0"), signal.SIGKILL)
        await load.progress(4)
        await cluster.all_here("prefill-0", "prefill-1", "decode-0", "decode-1")
        await load.progress(4)
        await write_bundle(run_dir, tmp_path / "after.tar.gz")
        load.stop()
    both = [tmp_path / "busy.tar.gz", tmp_path / "after.tar.gz"]
    for each in ([both[0]], [both[1]], both):
        verdict = judge(lines_of(each))
        print(dict(verdict.actions), dict(verdict.messages))
        assert verdict.breaches == []
        assert "commit" in verdict.actions
    assert {"abort", "release"} <= set(judge(lines_of(both)).actions)
    said = click.testing.CliRunner().invoke(command, [str(both[1])])
    assert (said.exit_code, said.output.splitlines()[-1]) == (0, "every step is one of the model's")
