"""Requests as clients send them, and streams as clients read them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from .fake_worker import FakeWorker, say

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"

OF_PAGES: list[dict[str, str]] = [
    {"origin": "http://evil.example", "content-type": "text/plain"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
]
"""Headers by which browsers tell that a page asks."""

OF_PEOPLE: list[dict[str, str]] = [{}, {"sec-fetch-site": "none"}, {"content-type": "text/plain"}]


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0} | fields


async def chat(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(CHAT, json=chat_body(**fields))


async def complete(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(COMPLETION, json={"model": "tiny", "prompt": "hi"} | fields)


async def until_said(lines: AsyncIterator[str], text: str) -> None:
    while text not in await anext(lines):
        pass


@contextlib.asynccontextmanager
async def begun(client: httpx.AsyncClient, decode: FakeWorker) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of a stream that has brought its first text; `decode` says no more of it by itself."""
    decode.plans = [say("first", finish="")]
    async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
        lines = response.aiter_lines()
        await until_said(lines, "first")
        yield lines


def events(response: httpx.Response) -> list[Any]:
    """The stream's documents; its end is checked."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    data = [line.removeprefix("data: ") for line in lines]
    if data[-1] == "[DONE]":
        data.pop()
    else:
        assert "error" in json.loads(data[-1])
    return [json.loads(line) for line in data]


def streamed_text(documents: list[Any]) -> str:
    """The text of a chat's chunks."""
    choices = [choice for document in documents for choice in document.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def streamed_calls(documents: list[Any], index: int = 0) -> list[dict[str, str]]:
    """The calls of a chat's chunks, put together; that each one's first delta says what it is, is checked."""
    calls: list[dict[str, str]] = []
    for delta in call_deltas(documents, index):
        if delta["index"] == len(calls):
            assert delta["type"] == "function"
            assert delta["id"]
            calls.append({"id": delta["id"], "name": delta["function"]["name"], "arguments": ""})
        else:
            assert delta.keys() == {"index", "function"}
            assert delta["function"].keys() == {"arguments"}
        calls[delta["index"]]["arguments"] += delta["function"]["arguments"]
    return calls


def call_deltas(documents: list[Any], index: int = 0) -> list[Any]:
    """Of the answer with this index, as they came."""
    choices = [choice for document in documents for choice in document["choices"] if choice["index"] == index]
    return [delta for choice in choices for delta in choice["delta"].get("tool_calls", ())]


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error, whose shape and status are checked."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert "Traceback" not in response.text
    return error
