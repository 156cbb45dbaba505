"""`quiesce serve` as a process of its own, with fake children: start, restart, drain, second signal, sudden death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce.cli.run_directory import worker_sockets

from .roll import Roll, open_roll

FAKE_SERVE = Path(__file__).with_name("fake_serve.py")


@pytest.fixture
def base() -> Iterator[Path]:
    """A short directory: sockets' paths have at most 107 bytes, pytest's own directories nearly as many."""
    path = Path(tempfile.mkdtemp(prefix="q"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def roll(base: Path) -> AsyncIterator[Roll]:
    async with open_roll(base / "roll") as opened:
        yield opened


class Served:
    """A running `fake_serve.py`."""

    def __init__(self, process: asyncio.subprocess.Process, base: Path) -> None:
        self.process = process
        self.base = base
        self.said: list[str] = []

    async def says(self, part: str) -> str:
        """Wait for a line of its stderr that holds `part`."""
        assert self.process.stderr
        while line := (await self.process.stderr.readline()).decode():
            self.said.append(line)
            if part in line:
                return line
        raise AssertionError(f"ended without {part!r}: {''.join(self.said)}")

    async def ends(self) -> int:
        _, rest = await self.process.communicate()
        self.said.append(rest.decode())
        print("".join(self.said))
        return self.process.returncode or 0

    def run_directories(self) -> list[Path]:
        return list(self.base.glob("quiesce-*"))


@pytest.fixture
async def start(base: Path, roll: Roll) -> AsyncIterator[Any]:
    begun: list[asyncio.subprocess.Process] = []

    async def begin(*options: str, behaviours: str = "", **environ: str) -> Served:
        words = [
            sys.executable,
            str(FAKE_SERVE),
            str(roll.path),
            behaviours,
            "--port",
            "0",
            "--model",
            "tiny",
            *options,
        ]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("QUIESCE_")}
        told = {"XDG_RUNTIME_DIR": str(base), "QUIESCE_SPARE": "off"} | environ
        process = await asyncio.create_subprocess_exec(*words, env=clean | told, stderr=asyncio.subprocess.PIPE)
        begun.append(process)
        return Served(process, base)

    yield begin
    for process in begun:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_it_starts_announces_and_drains(start: Any, roll: Roll) -> None:
    served = await start(
        "--page-size", "16", "--api-key", "secret", QUIESCE_DECODE_POOL_TOKENS="512", QUIESCE_CONTEXT_LENGTH="512"
    )
    lives = await roll.called(3)
    await served.says("Ready. Try:")
    table = "".join(served.said)
    for words in ("fake-model", "2,048 tokens", "prefill-0", "4,096 tokens in 256 pages of 16", "shm (same host)"):
        assert words in table
    assert "drain_ack" in table
    [run_dir] = served.run_directories()
    assert str(run_dir) in table
    assert [path.stem for path in worker_sockets(run_dir)] == ["decode-0", "prefill-0"]
    assert lives["decode-0"].settings["pool-tokens"] == 512
    assert lives["decode-0"].settings["peer"] == [f"prefill-0=unix:{run_dir}/prefill-0.sock"]
    assert lives["prefill-0"].settings["pool-tokens"] == 4 * 512
    assert lives["router"].settings["api-key"] == ["secret"]
    assert not [name for name in lives["decode-0"].environ if name.startswith("QUIESCE_")]

    served.process.terminate()
    for life in lives.values():
        await life.gone()
    assert await served.ends() == 0
    assert served.run_directories() == []


async def test_an_aggregated_server_has_one_worker(start: Any, roll: Roll) -> None:
    served = await start("--mode", "aggregated")
    assert set(await roll.called(2)) == {"aggregated-0", "router"}
    await served.says("Ready. Try:")


async def test_nobody_needs_to_read_what_it_says(start: Any, roll: Roll) -> None:
    """`quiesce serve 2>&1 | head`: the reader goes, serving and stopping go on."""
    served = await start()
    lives = await roll.called(3)
    await served.says("Ready. Try:")
    served.process._transport.get_pipe_transport(2).close()
    lives["decode-0"].kill()
    assert set(await roll.called()) == {"decode-0"}
    served.process.terminate()
    assert await served.process.wait() == 0
    for life in lives.values():
        await life.gone()


@pytest.mark.parametrize("victim", ["decode-0", "router"])
async def test_a_crashed_child_lives_again(start: Any, roll: Roll, victim: str) -> None:
    served = await start()
    lives = await roll.called(3)
    await served.says("Ready. Try:")
    lives[victim].kill()
    await served.says(f"{victim} was killed by SIGKILL; it starts again now")
    assert set(await roll.called()) == {victim}


@pytest.mark.parametrize(("victim", "spare"), [("decode-0", "spare"), ("router", "spare-router")])
async def test_a_spare_becomes_who_has_died_and_another_one_waits(
    start: Any, roll: Roll, victim: str, spare: str
) -> None:
    served = await start("--page-size", "8", QUIESCE_SPARE="auto")
    lives = await roll.called(3)
    await served.says("Ready. Try:")
    spares = await roll.called(2)
    assert [spares[name].settings["holds"] for name in ("spare", "spare-router")] == ["model", "router"]
    assert spares[spare].settings["page-size"] == 8
    await spares[spare].up()
    lives[victim].kill()
    await served.says(f"{victim} was killed by SIGKILL; a spare takes its place now")
    new = await spares[spare].became()
    assert (new.name, new.settings) == (victim, lives[victim].settings)
    await new.up()
    assert set(await roll.called()) == {spare}
    served.process.terminate()
    for life in (new, *spares.values(), *lives.values()):
        await life.gone()
    assert await served.ends() == 0


async def test_a_spare_does_not_outlive_a_killed_server(start: Any, roll: Roll) -> None:
    served = await start(QUIESCE_SPARE="libraries")
    await roll.called(3)
    spares = await roll.called(2)
    served.process.kill()
    for spare in spares.values():
        await spare.gone()


async def test_a_second_signal_ends_everything_at_once(start: Any, roll: Roll) -> None:
    served = await start(behaviours="router=stubborn", QUIESCE_GRACE_S="1h")
    lives = await roll.called(3)
    await served.says("Ready. Try:")
    served.process.send_signal(signal.SIGINT)
    await served.says("once more ends everything now")
    served.process.send_signal(signal.SIGINT)
    assert await served.ends() == 128 + signal.SIGINT
    for life in lives.values():
        await life.gone()
    assert served.run_directories() == []


async def test_a_stubborn_child_does_not_outlast_the_grace(start: Any, roll: Roll) -> None:
    served = await start("--grace-s", "200ms", behaviours="router=stubborn")
    lives = await roll.called(3)
    await served.says("Ready. Try:")
    served.process.terminate()
    await served.says("router did not stop within 5.15 s and is killed")
    assert await served.ends() == 0
    for life in lives.values():
        await life.gone()


async def test_processes_have_time_to_exit_however_small_the_grace(start: Any, roll: Roll) -> None:
    served = await start("--grace-s", "0", behaviours="router=late:0.3,decode-0=late:0.3")
    await roll.called(3)
    await served.says("Ready. Try:")
    served.process.terminate()
    assert await served.ends() == 0
    assert "did not stop" not in "".join(served.said)


async def test_at_a_second_signal_the_router_may_still_tell_its_clients(start: Any, roll: Roll) -> None:
    served = await start("--grace-s", "1h", behaviours="router=asked-twice")
    router = (await roll.called(3))["router"]
    await router.up()
    await served.says("Ready. Try:")
    served.process.terminate()
    await served.says("once more ends everything now")
    served.process.terminate()
    await router.hurried()
    assert await served.ends() == 128 + signal.SIGTERM


async def test_children_die_with_a_killed_server_and_the_next_one_sweeps(start: Any, roll: Roll) -> None:
    served = await start(behaviours="decode-0=stubborn")
    lives = await roll.called(3)
    await served.says("Ready. Try:")
    served.process.kill()
    for life in lives.values():
        await life.gone()
    [left] = served.run_directories()
    again = await start()
    await again.says("Ready. Try:")
    assert left not in again.run_directories()


async def test_a_signal_while_loading_ends_it_too(start: Any, roll: Roll) -> None:
    served = await start(behaviours="decode-0=refuse:1")
    await roll.called(3)
    served.process.terminate()
    await served.says("stopping")
    assert await served.ends() == 0


async def test_settings_that_a_worker_refuses_end_it_with_the_workers_code(start: Any, roll: Roll) -> None:
    served = await start(behaviours="decode-0=refuse:3")
    await served.says("giving up: decode-0 ended with exit code 3 before it was ready")
    assert await served.ends() == 3
    assert served.run_directories() == []


async def test_an_error_of_several_children_is_said_once(start: Any, roll: Roll) -> None:
    served = await start(behaviours="decode-0=complain:2,prefill-0=complain:2")
    assert await served.ends() == 2
    text = "".join(served.said)
    assert text.count("quiesce: this cannot be") == 1
    assert text.count("a line of its own") >= 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--model /nowhere", "quiesce: --model /nowhere: there is no such file or directory"),
        (
            "--context-length 4096 --decode-pool-tokens 1000",
            "--context-length 4096 does not fit the KV pool of 1000 tokens",
        ),
        ("--context-length 2000000", "--context-length 2000000 is more than the model's 1048576"),
        ("--landing staged --payload-digest off", "--payload-digest off with --landing staged"),
        ("--landing staged --landing-bytes 1M", "does not fit --landing-bytes 1.0 MiB"),
        ("--landing staged --landing-bytes 99999T", "of free memory"),
        ("--mode aggregated --transfer pull", "--transfer means nothing with --mode aggregated"),
        ("--mode aggregated --landing staged", "--landing means nothing with --mode aggregated"),
        ("--mode aggregated --prefill 2", "--prefill means nothing with --mode aggregated"),
        ("--mode aggregated --prefill-pool-tokens 2", "--prefill-pool-tokens means nothing with --mode aggregated"),
    ],
)
async def test_what_cannot_be_served_is_refused_before_anything_starts(
    start: Any, roll: Roll, options: str, problem: str
) -> None:
    served = await start(*options.split())
    await served.says(problem)
    assert await served.ends() == 2
    assert roll.calls.empty()


async def test_stages_of_a_start_are_lines_where_there_is_no_terminal(start: Any, roll: Roll) -> None:
    served = await start()
    await served.says("quiesce: waiting for a first answer, end to end")
    await served.says("Ready. Try:")
    assert len([line for line in served.said if line.startswith("quiesce: ")]) <= 3


async def test_a_taken_port_is_told_with_all_other_problems(start: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = await start("--port", str(port), "--page-size", "0")
        await served.says("quiesce: --page-size = 0: must be at least 1")
        await served.says(
            f"quiesce: --host 127.0.0.1 --port {port}: Address already in use; take another with --port N"
        )
        assert await served.ends() == 2
    assert served.run_directories() == []


async def test_inspect_shows_a_running_server(start: Any, roll: Roll) -> None:
    served = await start()
    await served.says("Ready. Try:")
    data = msgspec.json.decode((await inspect(served.base, "--once", "--json"))[0])
    assert set(data) == {"decode-0", "prefill-0"}
    assert data["decode-0"]["ranges"][0] == {"first": 14, "last": 44, "state": "held", "owner": "req-1"}
    output, said = await inspect(served.base)  # a pipe: once is enough
    assert re.fullmatch(rf"quiesce: {served.base}/quiesce-\d+ \(http://127.0.0.1:\d+, model tiny\)\n", said)
    drawn = output.decode()
    for words in ("[14..44]", "held 31", "drained by 0@abcdef01", "2.5 s", "waiting 1"):
        assert words in drawn
    assert "[45..255]" not in drawn


async def test_inspect_shows_spares(start: Any, roll: Roll) -> None:
    served = await start(QUIESCE_SPARE="libraries")
    await roll.called(3)
    for spare in (await roll.called(2)).values():
        await spare.up()
    data = msgspec.json.decode((await inspect(served.base, "--once", "--json"))[0])
    assert data["spare"] == {"name": "spare", "holds": "libraries", "waiting": True, "role": "spare"}
    assert data["spare-router"]["holds"] == "router"
    drawn = (await inspect(served.base))[0].decode()
    assert "spare: waits for a process to die; holds libraries\n" in drawn


async def inspect(base: Path, *options: str) -> tuple[bytes, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quiesce.cli.main", "inspect", *options),
        env=os.environ | {"XDG_RUNTIME_DIR": str(base)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, said = await process.communicate()
    assert process.returncode == 0
    return output, said.decode()
