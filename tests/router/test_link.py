from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce.control.frames import encode
from quiesce.control.stream import listen
from quiesce.ids import RequestId, Room, mint_incarnation
from quiesce.protocol.dispatch import DISPATCH_VERSION, Load, Sampling, Submit, Welcome
from quiesce.protocol.pairing import CallOff
from quiesce.router import link
from quiesce.router.failures import CLIENT_GONE
from quiesce.router.fleet import Fleet
from quiesce.router.link import WorkerLink
from quiesce.router.pairs import unfit

from .fake_worker import FakeWorker, nothing

WELCOME = Welcome("w", "aggregated", mint_incarnation(), "tiny", "f", 64, 64, 16, 8, version=DISPATCH_VERSION)


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"q{secrets.token_hex(2)}") as directory:
        yield Path(directory) / "w.sock"


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc1",
        encode(Load(0, 0, 0)),
        encode(WELCOME) + encode(WELCOME),
        encode(WELCOME) + encode(Load(-1, 0, 0)),
        encode(WELCOME) + b"\x00\x00\x00\x02{}",
    ],
)
async def test_nonsense_ends_the_connection_and_the_link_dials_again(path: Path, nonsense: bytes) -> None:
    """Whatever a worker says, the router lives, and a worker that talks sense later is used."""
    answers = [nonsense, encode(WELCOME) + encode(Load(0, 0, 64))]

    async def serve(sock: socket.socket) -> None:
        answer = answers.pop(0)
        await asyncio.get_running_loop().sock_sendall(sock, answer)
        if answers:
            sock.close()
        else:
            kept.append(sock)

    kept: list[socket.socket] = []
    listener = await listen(path, serve)
    fleet = Fleet([path])
    running = asyncio.ensure_future(fleet.run())
    async with asyncio.timeout(10):
        while answers or not (fleet.present and fleet.links[0].load.ready):
            await fleet.wait_for_change()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not fleet.present
    await listener.stop()
    for sock in kept:
        sock.close()


@pytest.mark.parametrize(("reason", "level"), [("draining", logging.INFO), ("", logging.WARNING)])
async def test_who_stops_as_told_is_no_warning(
    path: Path, caplog: pytest.LogCaptureFixture, reason: str, level: int
) -> None:
    async def serve(sock: socket.socket) -> None:
        load = Load(0, 0, 64, ready=not reason, reason=reason)
        await asyncio.get_running_loop().sock_sendall(sock, encode(WELCOME) + encode(load))
        sock.close()

    caplog.set_level(logging.INFO, "quiesce")
    listener = await listen(path, serve)
    fleet = Fleet([path])
    lost = asyncio.Event()
    fleet.on_lost = lambda link: lost.set()  # type: ignore[method-assign]
    running = asyncio.ensure_future(fleet.run())
    async with asyncio.timeout(10):
        await lost.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await listener.stop()
    assert {record.levelno for record in caplog.records if record.getMessage() == "worker is gone"} == {level}


async def test_a_new_life_is_counted_and_a_new_stream_is_not(path: Path) -> None:
    """The first life is no restart, nor is the same life on another stream; another incarnation is one."""
    lives = [WELCOME, WELCOME, msgspec.structs.replace(WELCOME, incarnation=mint_incarnation())]
    restarted, counted = list[str](), asyncio.Event()

    def on_restart(name: str) -> None:
        restarted.append(f"{name} after {3 - len(lives)} streams")
        counted.set()

    async def serve(sock: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(sock, encode(lives.pop(0)))
        sock.close()

    listener = await listen(path, serve)
    running = asyncio.ensure_future(Fleet([path], on_restart).run())
    await asyncio.wait_for(counted.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await listener.stop()
    assert restarted == ["w after 3 streams"]


async def test_a_worker_that_starts_later_is_found(path: Path) -> None:
    fleet = Fleet([path, path])
    assert len(fleet.links) == 1
    running = asyncio.ensure_future(fleet.run())
    for _ in range(5):
        await asyncio.sleep(0)  # the first attempt fails at once
    kept: list[socket.socket] = []

    async def serve(sock: socket.socket) -> None:
        kept.append(sock)
        await asyncio.get_running_loop().sock_sendall(sock, encode(WELCOME))

    listener = await listen(path, serve)
    async with asyncio.timeout(10):
        while not fleet.present:
            await fleet.wait_for_change()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await listener.stop()
    for sock in kept:
        sock.close()


# ------------------------------------------------------------ our own errors


async def until_present(fleet: Fleet, count: int) -> None:
    async with asyncio.timeout(10):
        while len(fleet.present) < count:
            await fleet.wait_for_change()


@contextlib.asynccontextmanager
async def workers(*paths: Path) -> AsyncIterator[None]:
    """Each says WELCOME, by a name of its own, and keeps its connections."""
    kept: list[socket.socket] = []

    async def serve(sock: socket.socket) -> None:
        kept.append(sock)
        welcome = msgspec.structs.replace(WELCOME, worker=Path(sock.getsockname()).stem)
        await asyncio.get_running_loop().sock_sendall(sock, encode(welcome))

    listeners = [await listen(path, serve) for path in paths]
    try:
        yield
    finally:
        for listener in listeners:
            await listener.stop()
        for sock in kept:
            sock.close()


@contextlib.asynccontextmanager
async def running(fleet: Fleet) -> AsyncIterator[asyncio.Future[None]]:
    task = asyncio.ensure_future(fleet.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def once(error: Exception, then: Callable[..., Any]) -> Callable[..., Any]:
    """Raises at its first call."""
    errors = [error]

    def called(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return then(*args, **kwargs)

    return called


@pytest.mark.parametrize("step", ["connect", "FrameStream", "show_address"])
async def test_no_error_of_ours_ends_a_link(path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The incident: a moment without file descriptors, and the router never dialled any worker again."""
    error = OSError(errno.EMFILE, "Too many open files")
    monkeypatch.setattr(link, step, once(error, getattr(link, step)))
    fleet = Fleet([path])
    async with workers(path), running(fleet):
        await until_present(fleet, 1)


async def test_a_link_that_ends_begins_anew_and_the_others_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = path.with_name("x.sock")
    fleet = Fleet([path, second])
    monkeypatch.setattr(fleet.links[0], "run", once(RuntimeError("bug"), fleet.links[0].run))
    async with workers(path, second), running(fleet) as task:
        await until_present(fleet, 2)
        assert not task.done()


async def test_of_two_workers_of_one_name_the_first_is_used_until_it_is_gone(
    path: Path,
) -> None:
    one, two = (FakeWorker(path.with_name(f"{n}.sock"), "worker", "aggregated", nothing) for n in "ab")
    fleet = Fleet([one.path, two.path], model="tiny")
    await one.start()
    async with running(fleet), asyncio.timeout(20):
        await until_present(fleet, 1)
        await two.start()
        tries = asyncio.Event()
        inner = fleet.why_not

        def looked(link: WorkerLink, welcome: Welcome) -> str:
            tries.set()
            return inner(link, welcome)

        fleet.why_not = looked  # type: ignore[method-assign]
        await tries.wait()
        assert [link.address for link in fleet.present] == [one.path]
        await one.stop()
        while [link.address for link in fleet.present] != [two.path]:
            await fleet.wait_for_change()
    await two.stop()


async def test_workers_come_and_go_while_the_router_runs(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that is no longer named gets nothing new, and its link ends when what runs there has ended."""
    caplog.set_level(logging.INFO, "quiesce")
    one, two = (FakeWorker(path.with_name(f"{n}.sock"), f"worker-{n}", "aggregated", nothing) for n in "ab")
    for worker in (one, two):
        await worker.start()
    fleet = Fleet([one.path], model="tiny")
    running = asyncio.ensure_future(fleet.run())
    async with asyncio.timeout(20):
        while not fleet.pairs():
            await fleet.wait_for_change()
        (first,) = fleet.links
        submit = Submit(RequestId("r"), Room(1), b"\0" * 4, Sampling(temperature=0.0))
        halves = fleet.start(submit, first, None)
        await one.submitted()
        fleet.expect([two.path])
        assert first in fleet.links
        assert unfit(first, "tiny") == "is no longer named"
        while [pair.decode.name for pair in fleet.pairs()] != ["worker-b"]:
            await fleet.wait_for_change()
        fleet.end(halves, CallOff(CLIENT_GONE))
        assert [link.name for link in fleet.links] == ["worker-b"]
        fleet.expect([two.path, one.path])
        while len(fleet.pairs()) < 2:
            await fleet.wait_for_change()
    assert "worker is no longer named" in caplog.messages
    assert "worker is gone" not in caplog.messages, "it is as well as before"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for worker in (one, two):
        await worker.stop()


async def test_a_change_between_looking_and_waiting_is_not_missed() -> None:
    """Whoever waits is a task, and begins later than it was made: a router that looked in vain then waited for ever."""
    fleet = Fleet([])
    waiting = asyncio.ensure_future(fleet.wait_for_change())
    fleet.on_change()
    async with asyncio.timeout(5):
        await waiting
