"""The end of an answer comes last: when its client has it, the request is counted and its part of limits is free."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from quiesce.protocol.dispatch import Submit, Tokens
from quiesce.router.app import build_app

from .asking import CHAT, chat_body
from .conftest import Deployment
from .fake_worker import FakeWorker, fail, words
from .tenancy import bearer, write_tenants

AtEnd = Callable[[], Awaitable[None]]


async def ask(deployment: Deployment, at_end: AtEnd, **fields: Any) -> bytes:
    """Tenant a's answer, from the application itself: `at_end` runs before its last byte is sent, or its [DONE]."""
    assert deployment.server is not None
    request = {"type": "http.request", "body": json.dumps(chat_body(**fields)).encode(), "more_body": False}
    messages = iter([request])
    answer: list[bytes] = []
    headers = {"content-type": "application/json"} | bearer("a")

    async def receive() -> dict[str, Any]:
        if message := next(messages, None):
            return message
        return await never()

    async def send(message: Any) -> None:
        body = message.get("body", b"")
        ends = message["type"] == "http.response.body" and not message["more_body"]
        answer.append(body)
        if ends:
            await at_end()

    scope = {
        "type": "http",
        "method": "POST",
        "path": CHAT,
        "raw_path": CHAT.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await build_app(deployment.server.service)(scope, receive, send)
    assert not any(b"[DONE]" in part for part in answer[:-1]), "a client stops reading there"
    return b"".join(answer)


async def never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


def begin_and_fail(worker: FakeWorker, submit: Submit) -> None:
    worker.send(Tokens(submit.request, words("he"), "", 0))
    fail()(worker, submit)


async def start(deployment: Deployment, tmp_path: Path) -> httpx.AsyncClient:
    return await deployment.start(retries=0, tenants=write_tenants(tmp_path / "t.toml", a="max-concurrent = 1"))


@pytest.mark.parametrize("stream", [False, True])
async def test_who_asks_again_at_the_end_of_an_answer_is_not_one_too_many(
    deployment: Deployment, tmp_path: Path, stream: bool
) -> None:
    client = await start(deployment, tmp_path)
    again: list[httpx.Response] = []

    async def ask_again() -> None:
        again.append(await client.post(CHAT, json=chat_body(), headers=bearer("a")))

    assert await ask(deployment, ask_again, stream=stream)
    assert [response.status_code for response in again] == [200]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_who_looks_at_the_end_of_an_answer_finds_it_counted(
    deployment: Deployment, tmp_path: Path, stream: bool, fails: bool
) -> None:
    client = await start(deployment, tmp_path)
    if fails:
        deployment.decode.plan = begin_and_fail
    outcome = "failed" if fails else "finished"
    seen: list[str] = []

    async def look() -> None:
        seen.append((await client.get("/metrics")).text)

    assert await ask(deployment, look, stream=stream)
    assert len(seen) == 1
    assert f'quiesce_requests_total{{outcome="{outcome}",role="router",worker="router"}} 1.0' in seen[0]
    assert f'outcome="{outcome}",role="router",tenant="a",worker="router"}} 1.0' in seen[0]
