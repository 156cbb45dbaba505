"""Clients that leave, in every way and at every stage: both halves stop, and what they had comes back on proof."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quiesce.protocol.dispatch import Tokens, WorkerSnapshot
from quiesce.router import connection, halves

from .asking import CHAT, chat, chat_body, events, streamed_text
from .conftest import Deployment
from .fake_worker import nothing, say, words
from .whole import LEAVES, STAGES, Whole, whole


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not tmp_path: a socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="q-", dir="/tmp") as made:
        yield Path(made)


def is_gone(view: WorkerSnapshot) -> bool:
    """All but the request before it."""
    return len(view.rooms) == 1


def is_free(view: WorkerSnapshot) -> bool:
    return not view.rooms


def is_held(view: WorkerSnapshot) -> bool:
    return [room.state for room in view.rooms] == ["holding"]


def has_stopped(view: WorkerSnapshot) -> bool:
    """Its step is under way, and cannot be taken back."""
    return len(view.rooms) <= 1


WHILE_STOPPED = {
    "queued": (is_gone, is_gone),
    "prefill": (is_held, is_free),  # its chunk is being computed into its pages; decode has prefill's ack
    "transfer": (is_held, is_held),  # the write may still land
    "decode": (is_free, has_stopped),
}
"""Prefill and decode after the client left, while the request is still held at its stage."""


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("stage", STAGES)
async def test_both_halves_stop_and_give_back(directory: Path, stage: str, leave: str) -> None:
    async with whole(directory) as server:
        before = await server.answered()
        caller = await server.stopped_at(stage, stream=True)
        left_s = time.monotonic()
        LEAVES[leave](caller)
        for worker, there in zip(("prefill-0", "decode-0"), WHILE_STOPPED[stage], strict=True):
            await server.house.desk.shows(worker, there)
        await cancelled(server)
        print(f"{leave} in {stage}: both halves knew after {time.monotonic() - left_s:.3f} s")
        server.go_on()
        await server.is_whole()
        assert (await server.answered())["choices"] == before["choices"]


async def cancelled(server: Whole) -> None:
    """The router has counted it as cancelled."""
    counted = 'quiesce_requests_total{outcome="cancelled",role="router",worker="router"} 1.0'
    async with asyncio.timeout(60):
        while counted not in server.server.service.meter.telemetry.render():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("stage", ["queued", "prefill", "transfer"])
async def test_after_handoff_nothing_is_held(directory: Path, stage: str) -> None:
    """`--on-disconnect after-handoff`: it finishes, decode commits and ends it; no ABORT is ever sent."""
    async with whole(directory, on_disconnect="after-handoff") as server:
        caller = await server.stopped_at(stage, stream=True)
        caller.close()
        await cancelled(server)
        rooms = 2 if stage == "queued" else 1
        for worker in ("prefill-0", "decode-0"):
            assert len(await server.rooms(worker)) == rooms
        server.go_on()
        await server.is_whole()
        assert await server.metric("decode-0", "quiesce_aborts_sent_total") == 0
        assert await server.metric("decode-0", "quiesce_releases_total") == 0, "nothing was held"


async def test_after_handoff_a_client_that_leaves_decode_ends_it(directory: Path) -> None:
    async with whole(directory, on_disconnect="after-handoff") as server:
        caller = await server.stopped_at("decode", stream=True)
        caller.reset()
        await cancelled(server)
        server.go_on()
        await server.is_whole()


async def test_after_handoff_lingers_within_bounds(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a time, or a number, clients that left abort as ever: pages are held, then free."""
    monkeypatch.setattr("quiesce.router.fleet._LINGER_S", 0.02)
    async with whole(directory, on_disconnect="after-handoff") as server:
        (await server.stopped_at("transfer")).close()
        for worker in ("prefill-0", "decode-0"):
            await server.house.desk.shows(worker, is_held)
        monkeypatch.setattr("quiesce.router.fleet._LINGER_S", 3600.0)
        monkeypatch.setattr("quiesce.router.fleet._MOST_LINGERING", 0)
        server.go_on()
        await server.house.empty()
        (await server.stopped_at("transfer")).close()
        for worker in ("prefill-0", "decode-0"):
            await server.house.desk.shows(worker, is_held)
        server.go_on()
        await server.is_whole()


@pytest.mark.parametrize("stage", STAGES)
async def test_the_keep_alive_timer_ends_no_request(
    directory: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about connections without one, and begins anew after each."""
    monkeypatch.setattr("quiesce.router.main._KEEP_ALIVE_S", 0.05)
    async with whole(directory) as server:
        caller = await server.stopped_at(stage)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.until(b"HTTP"), 0.2)
        server.go_on()
        assert (await caller.until(b"never said")).startswith(b"HTTP/1.1 200"), "and then it was closed"
        await server.is_whole()


LONG = {"context_length": 4096, "pool_tokens": 4096}


async def test_who_does_not_read_is_ended_before_it_costs_memory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decode is told long before the answer's end, and the connection goes when nothing was read for a while."""
    monkeypatch.setattr(halves, "MOST_UNREAD_TOKENS", 64)
    monkeypatch.setattr(connection, "_UNREAD_S", 0.5)
    async with whole(directory, prefill=LONG, decode=LONG) as server:
        told = server.told_decode()
        server.server._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        caller = server.call()
        caller.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await caller.ask(prompt="hi", max_tokens=4000, logprobs=5, stream=True)
        await caller.until(b"data:")
        await server.house.empty()
        assert told == ["client_too_slow"]
        async with asyncio.timeout(60):
            while server.server.server_state.connections:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.005)
        await server.is_whole()
        assert await server.metric("decode-0", "quiesce_held_page_seconds_total") == 0


async def test_who_reads_on_sees_that_it_was_too_slow(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before is there, then an error ends the stream. Who reads all the time sees nothing of bounds."""
    monkeypatch.setattr(halves, "MOST_UNREAD_TOKENS", 16)
    client = await deployment.start()
    deployment.decode.plans = [say(*["x"] * 200, finish="")]
    async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
        lines = [line async for line in response.aiter_lines() if line]
    assert (await deployment.decode.cancelled()).failure.code == "client_too_slow"
    assert '"client_too_slow"' in lines[-1]
    assert len(lines) > 16
    deployment.decode.plans = [nothing]
    asked = asyncio.ensure_future(chat(client, stream=True))
    submit = await deployment.decode.submitted(2)
    for number in range(50):
        deployment.decode.send(Tokens(submit.request, words("y"), "stop" if number == 49 else ""))
        await client.get("/health")  # a turn of the router's
    assert streamed_text(events(await asked)) == "y" * 50
