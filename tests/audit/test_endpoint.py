"""How donors leave, as a server sees it; and what an event stream may hold."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator

import msgspec
import pytest

from quiesce.audit.endpoint import PATIENCE, Endpoint, Keys, patience_s, root_of
from quiesce.audit.events import MOST_BYTES, Stream
from quiesce.audit.observation import Answer, Outcome
from quiesce.audit.options import Options
from quiesce.audit.plan import Arm, Ask, Leave, Manner
from quiesce.audit.target import Target
from quiesce.errors import PeerUnusable, UsageError

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
EVENT = b'data: {"choices": [{"delta": {"content": "word "}}]}\n\n'


@contextlib.asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[tuple[str, asyncio.Future[str]]]:
    """Says `answer` to one request and waits for its client's end: `closed` or `reset`."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)
        try:
            while await reader.read(1 << 16):
                pass
            ended.set_result("closed")
        except ConnectionResetError:
            ended.set_result("reset")
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", ended


@pytest.mark.parametrize(("manner", "seen"), [(Manner.CLOSE, "closed"), (Manner.RESET, "reset")])
@pytest.mark.parametrize("leave", ["before the answer", "in it"])
async def test_a_donor_leaves_in_the_manner_that_was_planned(manner: Manner, seen: str, leave: str) -> None:
    when = Leave(manner, ttfts=1.0) if leave == "before the answer" else Leave(manner, events=1)
    async with server(b"" if when.ttfts else HEAD + EVENT) as (url, ended):
        target = Target(url=url, ttft_s=0.2)
        ask = Ask(
            id=1, role="donor", arm=Arm.ABORT, content="x", max_tokens=4, own=(), fresh_connection=True, leave=when
        )
        async with Endpoint(url, Keys(), Options(seed=1)) as endpoint:
            answer = await endpoint.ask(ask, target)
            assert await asyncio.wait_for(ended, 30) == seen
    assert answer.outcome is Outcome.LEFT


@contextlib.asynccontextmanager
async def saying(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Says `answer` to every request; the heads of those that came."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", heads


def body(content: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"content-length: %d" % len(content), b"connection: close", *headers]
    return b"\r\n".join([*lines, b"", content])


ASK = Ask(id=1, role="victim", arm=Arm.ALONE, content="x", max_tokens=4, own=())


async def test_a_proxy_of_the_environment_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with saying(body(b'{"by": "proxy"}')) as (proxy, stolen), saying(body(b'{"by": "target"}')) as (url, heads):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with Endpoint(url, Keys("sk-secret"), Options(seed=1)) as endpoint:
            assert await endpoint.get("/v1/models") == {"by": "target"}
            await endpoint.ask(ASK, Target(url=url))
    assert stolen == []
    assert all(b"Bearer sk-secret" in head for head in heads)


async def test_compressed_bodies_are_not_read() -> None:
    bomb = body(gzip.compress(b'{"a": 1' + b" " * (MOST_BYTES + 1) + b"}"), b"content-encoding: gzip")
    async with saying(bomb) as (url, heads), Endpoint(url, Keys(), Options(seed=1)) as endpoint:
        assert await endpoint.get("/v1/models") == {}
        assert await endpoint.post("/tokenize", {}) == {}
        assert (await endpoint.ask(ASK, Target(url=url))).outcome is Outcome.INCOMPLETE
        with pytest.raises(PeerUnusable, match="compressed"):
            await endpoint.status("/v1/models")
    assert all(b"accept-encoding: identity" in head.lower() for head in heads)


async def test_small_answers_are_bounded() -> None:
    long = body(b'{"a": 1' + b" " * MOST_BYTES + b"}")
    async with saying(long) as (url, _), Endpoint(url, Keys(), Options(seed=1)) as endpoint:
        assert await endpoint.get("/v1/models") == {}


def read(*pieces: bytes) -> Answer:
    stream = Stream(Answer(status=200))
    for piece in pieces:
        stream.feed(piece)
    stream.end()
    return stream.answer


def test_an_event_may_come_in_pieces() -> None:
    whole = (
        EVENT * 3 + b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 7}}\r\n'
    )
    answer = read(*(whole[i : i + 1] for i in range(len(whole))), b"data: [DONE]\n\n")
    assert (answer.text, answer.finish, answer.outcome) == ("word word word ", "stop", Outcome.FINISHED)
    assert answer.usage.prompt_tokens == 7


def test_a_stream_without_a_reason_is_incomplete_and_one_with_an_error_is_one() -> None:
    assert read(EVENT).outcome is Outcome.INCOMPLETE
    answer = read(EVENT, b'data: {"error": {"code": "context_changed", "message": "m"}}\n\n')
    assert (answer.outcome, answer.code) == (Outcome.ERROR, "context_changed")


@pytest.mark.parametrize(
    "line", [b"data: nonsense", b"data: [1]", b'data: {"choices": [3, {"delta": 5}]}', b"\xff\xfe", b":"]
)
def test_nonsense_is_passed_over(line: bytes) -> None:
    assert read(line + b"\n", EVENT).text == "word "


def test_an_answer_without_end_is_given_up() -> None:
    stream = Stream(Answer())
    with pytest.raises(PeerUnusable, match="bytes"):
        stream.feed(b"x" * (MOST_BYTES + 1))


def test_a_long_prompt_is_waited_for_as_long_as_its_length_takes() -> None:
    """Who gives up has left, and a passive audit leaves nobody."""
    options, target = Options(seed=1, timeout_s=10.0), Target(url="http://h", ttft_s=1.0)
    short = Ask(id=1, role="victim", arm=Arm.ALONE, content="x" * target.chars_for(8 * 512), max_tokens=4, own=())
    long = msgspec.structs.replace(short, arm=Arm.LONG)
    assert patience_s(short, target, options) == 10
    assert patience_s(long, target, options) == pytest.approx(PATIENCE * 8)
    assert patience_s(long, msgspec.structs.replace(target, ttft_s=9.0), options) == 100
    assert patience_s(long, msgspec.structs.replace(target, ttft_s=0.01), options) == 10


def test_addresses() -> None:
    assert root_of("127.0.0.1:8000") == "http://127.0.0.1:8000"
    assert root_of("https://api.example.com/v1/") == "https://api.example.com"
    assert root_of("http://h/proxy/v1") == "http://h/proxy"
    assert root_of("host:8000/v1") == "http://host:8000"
    for wrong in ("notaurl", "not a url", "notaurl:port", "h:99999", "http://[::1"):
        with pytest.raises(UsageError):
            root_of(wrong)
    for wrong in ("ftp://h", "http://", "http://h/?key=secret", "http://u:p@h"):
        with pytest.raises(UsageError) as raised:
            root_of(wrong)
        assert "secret" not in str(raised.value)
