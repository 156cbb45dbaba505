"""What becomes of running requests when the router has to stop before they are done."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from quiesce.router import main
from quiesce.router.main import router
from quiesce.router.settings import RouterSettings

from .asking import CHAT, begun, chat, chat_body, error_of, until_said
from .conftest import TINY, Deployment
from .fake_worker import nothing, say

JSON = b"Content-Type: application/json\r\n\r\n"
WAYS = pytest.mark.parametrize(("grace_s", "signals", "when"), [(0.0, 1, "grace period"), (60.0, 2, "second signal")])


def stop(deployment: Deployment, signals: int) -> None:
    assert deployment.server is not None
    for _ in range(signals):
        deployment.server.stop()


async def rest(lines: AsyncIterator[str]) -> list[str]:
    return [line async for line in lines if line]


def to_its_end(connection: socket.socket) -> bytes:
    """What comes until the other side ends; raises ConnectionError when it is torn."""
    with connection:
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings and worse; a traceback is never among them."""
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not any(record.exc_info for record in records)
    return [record.getMessage() for record in records]


@WAYS
async def test_requests_end_in_words(
    deployment: Deployment, caplog: pytest.LogCaptureFixture, grace_s: float, signals: int, when: str
) -> None:
    """A stream with an error event, another one with a 503; both halves of each are told."""
    client = await deployment.start(grace_s=grace_s)
    deployment.decode.plans = [say("first", finish=""), nothing]
    async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
        lines = response.aiter_lines()
        await until_said(lines, "first")
        whole = asyncio.ensure_future(chat(client))
        await deployment.decode.submitted(2)
        stop(deployment, signals)
        (last,) = await rest(lines)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "server_stopping"
    assert error_of(await whole, 503)["code"] == "server_stopping"
    for number in (1, 2):
        assert (await deployment.decode.cancelled(number)).failure.code == "server_stopping"
    await deployment.close()
    assert said(caplog) == [f"2 requests ended at the {when}"]


@WAYS
async def test_a_client_that_still_sends_its_body(
    deployment: Deployment, caplog: pytest.LogCaptureFixture, grace_s: float, signals: int, when: str
) -> None:
    """It waits for `100 Continue`, which comes once the router reads."""
    await deployment.start(grace_s=grace_s)
    assert deployment.server is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", deployment.server.port)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode())
    assert b"100" in await reader.readuntil(b"\r\n\r\n")
    stop(deployment, signals)
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"server_stopping" in answer
    writer.close()
    await deployment.close()
    assert said(caplog) == [f"1 request ended at the {when}"]


async def test_a_client_that_does_not_read_is_cut_off(
    deployment: Deployment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delays the end by no more than some seconds."""
    for name in ("_GOODBYE_S", "_SEEN_OFF_S"):
        monkeypatch.setattr(main, name, 0.05)
    client = await deployment.start(grace_s=0.0)
    async with begun(client, deployment.decode) as lines:
        assert deployment.server is not None
        for connection in deployment.server.server_state.connections:
            if (flow := getattr(connection, "flow", None)) is not None:
                flow.pause_writing()
        stop(deployment, 1)
        with pytest.raises(httpx.HTTPError):
            await rest(lines)
    await deployment.close()
    assert said(caplog) == ["1 request ended at the grace period"]


async def test_who_has_asked_when_the_port_closes_is_answered(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a connection that has served before, and on ones that nobody has accepted yet."""
    await deployment.start()
    assert deployment.server is not None
    port, body = deployment.server.port, json.dumps(chat_body()).encode()
    asked = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
    asked += b"Content-Type: application/json\r\n\r\n" + body
    kept = socket.create_connection(("127.0.0.1", port), 10)
    kept.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    received = b""
    while b"ok" not in received:
        received += await asyncio.to_thread(kept.recv, 1 << 16)
    late, asked_late = list[socket.socket](), asyncio.Event()
    closing = main.Server.shutdown

    async def closed_just_now(server: main.Server, sockets: list[socket.socket] | None = None) -> None:
        late.extend(socket.create_connection(("127.0.0.1", port), 10) for _ in range(5))
        for connection in (kept, *late):
            connection.sendall(asked)
        asked_late.set()
        await closing(server, sockets)

    monkeypatch.setattr(main.Server, "shutdown", closed_just_now)
    stop(deployment, 1)
    await asked_late.wait()
    answers = await asyncio.gather(*(asyncio.to_thread(to_its_end, each) for each in (kept, *late)))
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 503"] * 6
    assert all(b"server_stopping" in answer for answer in answers)


def posted(**fields: Any) -> bytes:
    body = json.dumps(chat_body(**fields)).encode()
    return f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode() + JSON + body


def heads(received: bytes) -> list[bytes]:
    """Of each answer that has begun."""
    return [part.partition(b"\r\n\r\n")[0].lower() for part in received.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("grace_s", [0.0, 60.0])
async def test_an_answer_that_begins_once_the_server_stops_says_that_it_is_the_last(
    deployment: Deployment, grace_s: float
) -> None:
    """Of a request under way, whether it is called off or not, and one behind it is not begun: RFC 9112, 9.6."""
    client = await deployment.start(grace_s=grace_s, drain_delay_s=0.0)
    assert deployment.server is not None
    deployment.decode.plans = [nothing]
    reader, writer = await asyncio.open_connection("127.0.0.1", deployment.server.port)
    writer.write(posted() + posted())
    await deployment.decode.submitted()
    stop(deployment, 1)
    if grace_s:
        assert (await client.get("/readiness")).headers["connection"] == "close"
        assert (await chat(client)).headers["connection"] == "close"
        say("well")(deployment.decode, await deployment.decode.submitted())
    (head,) = heads(await reader.read())
    assert head[:3] == (b"200" if grace_s else b"503")
    assert b"connection: close" in head.split(b"\r\n")
    writer.close()
    await deployment.close()


async def test_while_load_balancers_look_elsewhere_connections_go_there_too(deployment: Deployment) -> None:
    client = await deployment.start(drain_delay_s=3600.0, grace_s=3600.0)
    assert "connection" not in (await chat(client)).headers
    stop(deployment, 1)
    assert (await chat(client)).headers["connection"] == "close"


async def test_a_request_behind_a_stream_that_began_before_is_refused_in_words(deployment: Deployment) -> None:
    """The stream has not said that it is the last."""
    await deployment.start(grace_s=0.0)
    assert deployment.server is not None
    deployment.decode.plans = [say("first", finish="")]
    reader, writer = await asyncio.open_connection("127.0.0.1", deployment.server.port)
    writer.write(posted(stream=True) + posted() + posted())
    await reader.readuntil(b"first")
    stop(deployment, 1)
    stream, refused = (await reader.read()).split(b"HTTP/1.1 ")
    assert b"server_stopping" in stream
    assert refused.startswith(b"503")
    assert {b"connection: close", b"retry-after: 1"} < set(refused.lower().split(b"\r\n"))
    writer.close()
    await deployment.close()


async def test_a_signal_to_all_processes_counts_once(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager sends one to the router, and so does `quiesce serve`, which has had one too."""
    client = await deployment.start(grace_s=60.0)
    assert deployment.server is not None
    async with begun(client, deployment.decode) as lines:
        for _ in range(2):
            deployment.server.on_signal()
        assert error_of(await chat(client), 503)["message"] == "The server is stopping and begins nothing new."
        monkeypatch.setattr(main, "_ONE_SIGNAL_S", 0.0)
        deployment.server.on_signal()
        (last,) = await rest(lines)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "server_stopping"


async def test_who_still_sends_what_was_refused_reads_why(deployment: Deployment) -> None:
    """And sees an end, not a reset, although it wants to close the connection itself."""
    await deployment.start(max_body_bytes=100)
    assert deployment.server is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", deployment.server.port)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())
    answered = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"x" * 1000000)
    assert answered.startswith(b"HTTP/1.1 413")
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_until_load_balancers_have_noticed_requests_are_served(deployment: Deployment) -> None:
    """It is not ready, and says so, for as long as it was told to; a second signal ends that as well."""
    client = await deployment.start(drain_delay_s=3600.0, grace_s=3600.0)
    stop(deployment, 1)
    ready = await client.get("/readiness")
    assert (ready.status_code, ready.json()["reason"]) == (503, "the server is stopping")
    assert (await client.get("/health")).status_code == 200
    assert (await chat(client)).status_code == 200
    await deployment.close()


async def test_after_the_delay_it_drains(deployment: Deployment) -> None:
    client = await deployment.start(drain_delay_s=0.01, grace_s=3600.0)
    async with begun(client, deployment.decode):
        stop(deployment, 1)
        while (refused := await chat(client)).status_code == 200:
            pass
        assert error_of(refused, 503)["code"] == "server_stopping"


async def test_while_requests_finish_others_are_told_that_the_server_stops(deployment: Deployment) -> None:
    """The port stays open: who asks whether it is ready hears no, and why."""
    client = await deployment.start(grace_s=60.0)
    async with begun(client, deployment.decode) as lines:
        stop(deployment, 1)
        ready = await client.get("/readiness")
        assert (ready.status_code, ready.json()["reason"]) == (503, "the server is stopping")
        refused = await chat(client)
        assert error_of(refused, 503)["code"] == "server_stopping"
        assert refused.headers["retry-after"] == "1"
        assert (await client.get("/health")).status_code == 200
        stop(deployment, 1)
        (last,) = await rest(lines)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "server_stopping"
    await deployment.close()


async def test_without_requests_nothing_is_said(deployment: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    """Neither of requests nor of workers that are left; a test generation under way is dropped."""
    deployment.decode.probe_plan = nothing
    await deployment.start(ready=False, grace_s=0.0)
    await deployment.until(lambda service: "first generation" in service.readiness.why_not())
    await deployment.close()
    assert said(caplog) == []


def test_the_servers_library_speaks_in_our_lines() -> None:
    program = (
        "from quiesce.router.main import run; from quiesce.router.settings import RouterSettings;"
        "run(RouterSettings(port=0, model='tiny', grace_s=1.0))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition("port=")[2])
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400")
        os.kill(process.pid, signal.SIGTERM)
        lines = process.stderr.read().splitlines()
    assert lines
    assert all(line.startswith("ts=") for line in lines)


@pytest.mark.parametrize("name", ["fleet.Fleet", "readiness.Readiness"])
@pytest.mark.parametrize("error", [None, RuntimeError("bug")])
async def test_without_links_or_probes_the_router_ends_in_failure(
    name: str, error: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It could be up, and deaf, for ever; its supervisor starts another one when it ends."""

    async def ends(_: object) -> None:
        if error:
            raise error

    monkeypatch.setattr(f"quiesce.router.{name}.run", ends)
    async with router(RouterSettings(port=0, model="tiny"), TINY) as server:
        async with asyncio.timeout(20):
            await server.serve()
        assert server.exit_code == 70
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.CRITICAL]
