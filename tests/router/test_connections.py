"""Clients that are slow, silent or many, at the level of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading

import httpx
import pytest

from quiesce.api.asked import Asked, read_completion
from quiesce.router import capacity, connection
from quiesce.router.main import Server
from quiesce.router.settings import RouterSettings

from .asking import CHAT, chat, chat_body, error_of
from .conftest import Deployment
from .fake_worker import nothing

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

SOON_S = 0.05
HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nhost: h\r\n\r\n"


async def connect(deployment: Deployment) -> Streams:
    assert deployment.server is not None
    return await asyncio.open_connection("127.0.0.1", deployment.server.port)


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """What came until the connection ended, however it ended."""
    received = b""
    async with asyncio.timeout(10):
        try:
            while data := await reader.read(1 << 16):
                received += data
        except ConnectionError:
            pass
    return received


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def request(body: bytes, sent: int | None = None) -> bytes:
    return f"{HEAD}content-length: {len(body)}\r\n\r\n".encode() + body[:sent]


async def answer(reader: asyncio.StreamReader) -> bytes:
    """One whole answer of a connection that stays."""
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(int(length.split(b":")[1]))


# ------------------------------------------------------------ time


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /health HTTP/1.1\r\nhost: h\r\n", GET + b"GET /he"])
async def test_a_client_that_does_not_finish_its_head_is_disconnected(deployment: Deployment, sent: bytes) -> None:
    await deployment.start(receive_timeout_s=SOON_S)
    reader, writer = await connect(deployment)
    writer.write(sent)
    received = await end_of(reader)
    assert received.startswith(b"HTTP/1.1 200") == sent.startswith(GET)
    await leave(writer)


async def test_bytes_that_trickle_in_win_no_time(deployment: Deployment) -> None:
    await deployment.start(receive_timeout_s=4 * SOON_S)
    reader, writer = await connect(deployment)
    ended = asyncio.ensure_future(end_of(reader))
    writer.write(b"GET /health HTTP/1.1\r\nx: ")
    async with asyncio.timeout(10):
        while not ended.done():
            writer.write(b"x")
            await asyncio.wait({ended}, timeout=SOON_S / 5)
    await leave(writer)


async def test_between_requests_a_client_may_be_idle_for_longer(deployment: Deployment) -> None:
    await deployment.start(receive_timeout_s=SOON_S)
    reader, writer = await connect(deployment)
    writer.write(GET)
    assert b"ok" in await answer(reader)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 3 * SOON_S)
    writer.write(GET)
    assert b"ok" in await answer(reader)
    await leave(writer)


async def test_idleness_ends(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiesce.router.main._KEEP_ALIVE_S", SOON_S)
    await deployment.start()
    reader, writer = await connect(deployment)
    writer.write(GET)
    assert b"ok" in await end_of(reader)
    await leave(writer)


async def test_a_body_that_does_not_come_is_a_408(deployment: Deployment) -> None:
    await deployment.start(receive_timeout_s=4 * SOON_S)
    reader, writer = await connect(deployment)
    writer.write(request(json.dumps(chat_body()).encode(), sent=5))
    received = await reader.readuntil(b"\r\n0\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 408")
    assert b"request_timeout" in received
    await leave(writer)


async def test_who_goes_on_sending_what_was_refused_is_cut_off(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But has the time to read why."""
    monkeypatch.setattr(connection, "_LINGER_S", SOON_S)
    await deployment.start(max_body_bytes=100)
    reader, writer = await connect(deployment)
    writer.write(request(b"x" * 1000, sent=500))
    assert (await end_of(reader)).startswith(b"HTTP/1.1 413")
    await leave(writer)


async def test_a_request_takes_as_long_as_it_takes(deployment: Deployment) -> None:
    """No limit of time is about answers."""
    await deployment.start(receive_timeout_s=SOON_S)
    deployment.decode.plans = [nothing]
    reader, writer = await connect(deployment)
    writer.write(request(json.dumps(chat_body()).encode()))
    await deployment.decode.submitted()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 4 * SOON_S)
    await leave(writer)
    await deployment.decode.cancelled()


async def test_who_does_not_read_is_cut_off(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_UNREAD_S", SOON_S)
    await deployment.start()
    deployment.decode.plans = [nothing]
    reader, writer = await connect(deployment)
    writer.write(request(json.dumps(chat_body()).encode()))
    await deployment.decode.submitted()
    assert deployment.server is not None
    (served,) = deployment.server.server_state.connections
    assert isinstance(served, connection.Connection)
    served.pause_writing()
    assert await end_of(reader) == b""
    await deployment.decode.cancelled()
    await leave(writer)


async def test_a_client_that_ends_its_side_has_left(deployment: Deployment) -> None:
    """HTTP would let it wait for the answer; to us it looks the same as a client that is gone."""
    await deployment.start()
    deployment.decode.plans = [nothing]
    reader, writer = await connect(deployment)
    writer.write(request(json.dumps(chat_body()).encode()))
    await deployment.decode.submitted()
    writer.write_eof()
    assert (await deployment.decode.cancelled()).failure.code == "client_closed_request"
    assert await end_of(reader) == b""
    await leave(writer)


# ------------------------------------------------------------ number and memory


async def test_one_connection_too_many_is_told_so(deployment: Deployment) -> None:
    await deployment.start(max_connections=2)
    deployment.decode.plan = nothing
    held = [await connect(deployment) for _ in range(2)]
    for count, (_, each) in enumerate(held, 1):
        each.write(request(json.dumps(chat_body()).encode()))
        await deployment.decode.submitted(count)
    reader, writer = await connect(deployment)
    head, _, body = (await end_of(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in head
    assert json.loads(body)["error"]["code"] == "too_many_connections"
    await leave(writer)
    await leave(held[0][1])
    await deployment.decode.cancelled()
    reader, writer = await connect(deployment)
    writer.write(GET)
    assert b"ok" in await answer(reader)
    for _, each in (*held, (reader, writer)):
        await leave(each)


async def test_connections_that_only_wait_make_room(deployment: Deployment) -> None:
    """Longest first: a client that sends its request at once gets in while others hold sockets."""
    await deployment.start(max_connections=2)
    silent, idle = await connect(deployment), await connect(deployment)
    idle[1].write(GET)
    assert b"ok" in await answer(idle[0])
    new = await connect(deployment)
    assert await end_of(silent[0]) == b""
    for reader, writer in (new, idle):
        writer.write(GET)
        assert b"ok" in await answer(reader)
    for _, writer in (silent, idle, new):
        await leave(writer)


def test_a_flood_of_connections_exhausts_no_descriptors() -> None:
    """A real process with few of them: it says nothing of the system's resources, and answers who comes then."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300));from quiesce.router.main import run; "
        "from quiesce.router.settings import RouterSettings;run(RouterSettings(port=0, model='tiny', grace_s=0.0))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition("port=")[2])
        flood = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(500)]
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(GET)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for each in flood:
            each.close()
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("soft", "most"), [(resource.RLIM_INFINITY, 5000), (100_000, 5000), (1024, 1024 - 160 - 64 - 2), (10, 16)]
)
def test_fewer_connections_than_open_files(soft: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    settings = RouterSettings(worker=("unix:/w.sock",), max_connections=5000)
    assert capacity.most_connections(settings) == most


@pytest.mark.parametrize(
    ("limits", "raised"), [((1024, 4096), 4096), ((1024, 1 << 20), 5226), ((1024, -1), 5226), ((6000, 9000), None)]
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(
    limits: tuple[int, int], raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: told.append(wanted[0]))
    capacity.make_room(RouterSettings(worker=("unix:/w.sock",), max_connections=5000))
    assert told == ([] if raised is None else [raised])


async def test_bodies_of_all_requests_are_bounded(deployment: Deployment) -> None:
    """By what came, until their requests end; and nothing is lost on the way."""
    client = await deployment.start(max_body_bytes=3000, max_bodies_bytes=5000)
    deployment.decode.plans = [nothing]
    large = [{"role": "user", "content": "x" * 2500}]
    first = asyncio.ensure_future(chat(client, messages=large))
    await deployment.decode.submitted()
    response = await chat(client, messages=large)
    assert error_of(response, 503)["code"] == "overloaded"
    assert response.headers["retry-after"] == "1"
    assert (await chat(client)).status_code == 200
    first.cancel()
    await deployment.decode.cancelled()
    for _ in range(3):
        assert (await chat(client, messages=large)).status_code == 200
        assert (await client.post(CHAT, content=b"{" * 2500)).status_code == 400


@pytest.mark.parametrize(("size", "on_the_loop"), [(1000, True), (70_000, False)])
async def test_large_bodies_are_parsed_beside_the_loop(deployment: Deployment, size: int, on_the_loop: bool) -> None:
    await deployment.start()
    assert deployment.server is not None
    threads: list[threading.Thread] = []

    def read(body: bytes, longest_tokens: int) -> Asked:
        threads.append(threading.current_thread())
        return read_completion(body, longest_tokens)

    body = json.dumps({"prompt": "x" * size}).encode()
    assert (await deployment.server.service.parsed(read, body)).prompts == ("x" * size,)
    assert [thread is threading.main_thread() for thread in threads] == [on_the_loop]


async def test_too_many_token_ids_are_refused_before_they_are_decoded(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await deployment.start()
    monkeypatch.setattr("quiesce.api.asked._prompts", lambda *_: 1 / 0)
    error = error_of(await client.post("/v1/completions", json={"prompt": [65] * 5000}), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")


# ------------------------------------------------------------ hosts


@pytest.mark.parametrize("path", ["/health/", "/readiness/", "/v1/models/", "/v1/completions/"])
async def test_no_redirect_to_a_host_that_the_client_names(deployment: Deployment, path: str) -> None:
    client = await deployment.start()
    response: httpx.Response = await client.get(path, headers={"host": "evil.example"})
    assert response.status_code in (404, 405)
    assert "location" not in response.headers


async def test_a_client_that_resets_its_connection_is_no_fault_of_ours(
    deployment: Deployment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last byte of its answer and the end of our side."""
    http = await deployment.start()
    assert deployment.server is not None
    client = socket.create_connection(("127.0.0.1", deployment.server.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaves, left = connection.Connection.leave, asyncio.Event()

    def leave_after_a_reset(self: connection.Connection) -> None:
        client.close()
        left.set()
        leaves(self)

    monkeypatch.setattr(connection.Connection, "leave", leave_after_a_reset)
    client.sendall(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    await left.wait()
    assert (await chat(http)).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_what_is_still_said_to_a_client_that_reset_its_connection_is_not_logged(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    """Many pieces of an answer in one turn of the loop, before it tells the protocol that the connection is lost."""
    await deployment.start()
    deployment.decode.plans = [nothing]
    assert deployment.server is not None
    client = socket.create_connection(("127.0.0.1", deployment.server.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sendall(request(json.dumps(chat_body()).encode()))
    await deployment.decode.submitted()
    (served,) = deployment.server.server_state.connections
    assert isinstance(served, connection.Connection)
    client.close()
    await served.cycle.send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(20):
        await served.cycle.send({"type": "http.response.body", "body": b"piece", "more_body": True})
    assert served.transport.is_closing()
    assert not served.cycle.disconnected, "all in one turn"
    await deployment.decode.cancelled()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_client_that_closes_before_the_last_of_a_buffered_answer_is_no_fault_of_ours(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read all that had come, and closes between the loop's look at sockets and our last write: that succeeds,
    is answered by a reset, and then there is no side of ours to end."""
    await deployment.start()
    assert deployment.server is not None
    loop, faults = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, fault: faults.append(fault))
    left, lost = asyncio.Queue[asyncio.Transport](), asyncio.Event()
    leaves, loses = connection.Connection.leave, connection.Connection.connection_lost

    def leave_and_tell(self: connection.Connection) -> None:
        leaves(self)
        left.put_nowait(self.transport)

    def lose_and_tell(self: connection.Connection, exc: Exception | None) -> None:
        loses(self, exc)
        lost.set()

    monkeypatch.setattr(connection.Connection, "leave", leave_and_tell)
    monkeypatch.setattr(connection.Connection, "connection_lost", lose_and_tell)
    client = slow_reader(deployment.server)
    client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
    transport = await left.get()
    unsent = [transport.get_write_buffer_size()]
    while unsent[-1] > max((before - after for before, after in itertools.pairwise(unsent)), default=0):
        await asyncio.sleep(0)
        with contextlib.suppress(BlockingIOError):
            while client.recv(1 << 16):
                pass
        unsent.append(transport.get_write_buffer_size())
    assert unsent[-1] > 0, "one write more"
    loop.call_soon(client.close)  # it comes before that write, which the loop is about to find possible
    await lost.wait()
    assert faults == []


def slow_reader(server: Server) -> socket.socket:
    """Connected, with buffers of the kernel that hold little of an answer on both sides."""
    server._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect(("127.0.0.1", server.port))
    client.setblocking(False)
    return client
