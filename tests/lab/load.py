"""Clients that ask without a pause, and know what each answer must be."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from quiesce.lab.client import Answer, Client

GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def questions(count: int = 6, most_tokens: int = 160) -> list[dict[str, Any]]:
    """Prompts of several pages, answers of several lengths; bytes are tokens of `tiny`."""
    return [
        {
            "prompt": [(7 * number + i) % 251 for i in range(40 + 90 * number)],
            "max_tokens": most_tokens // (1 + number % 3),
        }
        | GREEDY
        for number in range(count)
    ]


class Load:
    """One client for each question asks it again and again; `wrong` are answers that are not the solo ones."""

    def __init__(self, client: Client, asked: Sequence[dict[str, Any]], solo: Sequence[Answer]) -> None:
        self.right, self.wrong, self.errors = 0, list[Answer](), Counter[str]()
        self.answers_s: list[tuple[float, float]] = []
        self.last_error_s = 0.0
        self.asked = asked
        self._client, self._solo = client, solo
        self._going = True

    async def ask_on(self, number: int) -> None:
        while self._going:
            began_s = time.monotonic()
            try:
                answer = await self._client.ask(self.asked[number])
            except httpx.HTTPError as error:
                await self._failed(type(error).__name__)
                continue
            if answer.error:
                await self._failed(answer.error[:200])
            elif answer.text != self._solo[number].text:
                self.wrong.append(answer)
            else:
                self.right += 1
                self.answers_s.append((began_s, time.monotonic()))

    async def _failed(self, error: str) -> None:
        self.errors[error] += 1
        self.last_error_s = time.monotonic()
        await asyncio.sleep(0.02)

    def first_after(self, *moments_s: float) -> float:
        """When the first answer was complete that was asked for after all these moments."""
        return min(ended_s for began_s, ended_s in self.answers_s if began_s > max(moments_s))

    def stop(self) -> None:
        self._going = False

    async def progress(self, count: int) -> None:
        """Until so many more right answers came."""
        wanted = self.right + count
        async with asyncio.timeout(120):
            while self.right < wanted:  # noqa: ASYNC110 - many clients count
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def under_load(client: Client, count: int = 6) -> AsyncIterator[Load]:
    """Load that has begun to be answered; it ends with the block."""
    asked = questions(count)
    solo = [await client.ask(question) for question in asked]
    assert not any(answer.error for answer in solo), solo
    load = Load(client, asked, solo)
    asking = [asyncio.create_task(load.ask_on(number)) for number in range(count)]
    try:
        await load.progress(count)
        yield load
    finally:
        load.stop()
        await asyncio.gather(*asking)
