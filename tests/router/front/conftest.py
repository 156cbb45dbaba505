"""Fronts of a real router before fake workers, asked as another router asks them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ..asking import chat_body
from ..conftest import Deployment

KEY = "a key of the other router"
BEARER = {"authorization": f"Bearer {KEY}"}
CHAT = "/v1/chat/completions"


class Fronts:
    """`prefill` and `decode` are clients of the pair's fronts; `public` is one of the router itself."""

    _rooms = itertools.count(1000)

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._stack = contextlib.AsyncExitStack()
        self.public: httpx.AsyncClient
        self.prefill: httpx.AsyncClient
        self.decode: httpx.AsyncClient

    async def start(self, **settings: Any) -> None:
        told: dict[str, Any] = {"fronts": 0, "front_key": KEY, **settings}
        self.public = await self.deployment.start(**told)
        self.prefill, *others = [await self._client(port) for port in self.ports]
        self.decode = others[0] if others else self.prefill

    @property
    def ports(self) -> list[int]:
        assert self.deployment.server is not None
        return self.deployment.server.front_ports

    def bootstrap(self, **fields: Any) -> dict[str, Any]:
        """What the other router adds to a body."""
        room = next(self._rooms)
        return {"bootstrap_host": "127.0.0.1", "bootstrap_port": self.ports[0], "bootstrap_room": room} | fields

    async def both(self, path: str, body: dict[str, Any]) -> tuple[httpx.Response, httpx.Response]:
        """The same body to prefill and to decode, at once."""
        prefill, decode = await asyncio.gather(self.prefill.post(path, json=body), self.decode.post(path, json=body))
        return prefill, decode

    async def chat(self, **fields: Any) -> tuple[httpx.Response, httpx.Response]:
        return await self.both(CHAT, chat_body(**self.bootstrap() | fields))

    async def close(self) -> None:
        await self._stack.aclose()

    async def _client(self, port: int) -> httpx.AsyncClient:
        url = f"http://127.0.0.1:{port}"
        client = httpx.AsyncClient(base_url=url, timeout=20, trust_env=False, headers=BEARER)
        return await self._stack.enter_async_context(client)


@pytest.fixture
async def fronts(deployment: Deployment) -> AsyncIterator[Fronts]:
    fronts = Fronts(deployment)
    try:
        yield fronts
    finally:
        await fronts.close()
