"""A client that streams a completion, and can leave in the middle of it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import msgspec

from quiesce.errors import PeerUnusable


class Answer(msgspec.Struct):
    """What came of a request: the text so far, why it ended, and the error if it ended by one."""

    text: str = ""
    finish: str = ""
    error: str = ""
    status: int = 200


class Client:
    """Requests to one server. `async with`."""

    def __init__(self, url: str, *, timeout_s: float = 120.0, key: str = "") -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=limits, headers=headers)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def pieces(self, body: dict[str, Any], answer: Answer) -> AsyncIterator[str]:
        """Stream a completion; yields each piece of text as it arrives and fills `answer`."""
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        async with self._http.stream("POST", path, json={**body, "stream": True}) as response:
            answer.status = response.status_code
            if response.status_code != 200:
                answer.error = (await response.aread()).decode()
                return
            async for line in response.aiter_lines():
                if piece := _take(line, answer):
                    yield piece

    async def ask(self, body: dict[str, Any]) -> Answer:
        """Stream a completion to its end."""
        answer = Answer()
        async for _ in self.pieces(body, answer):
            pass
        return answer

    async def first_token_s(self, prompt: Sequence[int], max_tokens: int = 4) -> float:
        """From the request to the first piece of its greedy answer, which is then read to its end.

        Raises PeerUnusable when no text comes.
        """
        began_s, answer, first_s = time.monotonic(), Answer(), 0.0
        body = {"prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        async for _ in self.pieces(body, answer):
            first_s = first_s or time.monotonic() - began_s
        if answer.error or not first_s:
            raise PeerUnusable(f"a request failed: {answer.error or 'no text came'}", took_effect=None)
        return first_s

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that bear `labels`."""
        lines = (await self._http.get("/metrics")).text.splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        samples = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in samples if all(each in line for each in wanted))


def _take(line: str, answer: Answer) -> str:
    """Read one line of the event stream into `answer`; the text it brought."""
    data = line.removeprefix("data: ")
    if data == line or data == "[DONE]":
        return ""
    event = json.loads(data)
    if "error" in event:
        answer.error = "{code}: {message}".format_map(event["error"])
        return ""
    piece = ""
    for choice in event["choices"]:
        piece += choice.get("text") or choice.get("delta", {}).get("content") or ""
        answer.finish = choice.get("finish_reason") or answer.finish
    answer.text += piece
    return piece
