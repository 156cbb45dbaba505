"""A look at several workers waits for none of them for long, and says who does not answer, and since when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from quiesce.cli import look as module
from quiesce.cli.inspect import snapshots
from quiesce.cli.look import Look, is_stopped, silence
from quiesce.errors import PeerUnusable
from quiesce.protocol.dispatch import WorkerSnapshot

from .roll import FAKE, Called, Roll, open_roll


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process cannot answer late, so it need not be waited for."""
    monkeypatch.setattr(module, "ANSWER_S", 0.05)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Sockets' paths have at most 107 bytes, pytest's own directories nearly as many."""
    with tempfile.TemporaryDirectory(prefix="q") as name:
        yield Path(name)


@pytest.fixture
async def lives(short_path: Path) -> AsyncIterator[dict[str, Called]]:
    """Two workers that answer, as processes of their own."""
    async with open_roll(short_path / "roll") as roll:
        processes = [await _begun(roll, short_path, name) for name in ("decode-0", "prefill-0")]
        called = await roll.called(2)
        for life in called.values():
            await life.up()
        yield called
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _begun(roll: Roll, directory: Path, name: str) -> asyncio.subprocess.Process:
    config = directory / f"{name}.toml"
    config.write_text(f'listen = "unix:{directory / name}.sock"\n')
    words = (sys.executable, str(FAKE), str(roll.path), "steady", name.partition("-")[0])
    return await asyncio.create_subprocess_exec(*words, "--name", name, "--config", str(config))


def stop(life: Called) -> None:
    os.kill(life.pid, signal.SIGSTOP)
    while not is_stopped(life.pid):
        os.sched_yield()


async def until(
    looking: Look, wanted: Callable[[WorkerSnapshot | PeerUnusable], bool]
) -> WorkerSnapshot | PeerUnusable:
    """What is seen at last; each look lets the loop turn once."""
    while True:
        seen = await looking.take()
        if wanted(seen):
            return seen
        await asyncio.sleep(0)


async def test_who_is_stopped_delays_nobody_and_is_named(
    lives: dict[str, Called], short_path: Path, short: None
) -> None:
    stop(lives["prefill-0"])
    async for decode, prefill in snapshots([short_path / "decode-0.sock", short_path / "prefill-0.sock"]):
        assert isinstance(decode, WorkerSnapshot)
        assert isinstance(prefill, PeerUnusable)
        pid = lives["prefill-0"].pid
        assert f"Its process {pid} is stopped (SIGSTOP). `kill -CONT {pid}` lets it go on." in str(prefill)
        assert str(prefill).startswith("prefill-0 has not answered since it was asked at ")
        break


async def test_who_goes_on_is_seen_again_without_being_asked_anew(
    lives: dict[str, Called], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Look(short_path / "decode-0.sock")
    try:
        monkeypatch.setattr(module, "ANSWER_S", 60.0)
        assert isinstance(await looking.take(), WorkerSnapshot)
        stop(lives["decode-0"])
        monkeypatch.setattr(module, "ANSWER_S", 0.0)
        first, second = await looking.take(), await looking.take()
        assert str(first)[:50] == str(second)[:50]
        os.kill(lives["decode-0"].pid, signal.SIGCONT)
        await until(looking, lambda seen: isinstance(seen, WorkerSnapshot))
    finally:
        looking.close()


async def test_who_dies_while_silent_is_told_as_gone(lives: dict[str, Called], short_path: Path, short: None) -> None:
    looking = Look(short_path / "decode-0.sock")
    try:
        stop(lives["decode-0"])
        assert "has not answered" in str(await looking.take())
        lives["decode-0"].kill()
        await lives["decode-0"].gone()
        said = await until(looking, lambda seen: "has not answered" not in str(seen))
        assert str(said) == "decode-0 hung up. Its own log says why."
        assert "Connection refused" in str(await looking.take())
    finally:
        looking.close()


def test_silence_of_who_runs_is_told_without_a_guess() -> None:
    said = str(silence("decode-0", time.time() - 65, os.getpid()))
    assert " 65 s ago. Is it overloaded?" in said
    assert "SIGSTOP" not in said


def test_who_is_gone_is_not_stopped() -> None:
    assert not is_stopped(2**22 + 1)
