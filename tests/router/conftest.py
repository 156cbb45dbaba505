"""A real router on a free port, in front of fake workers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from quiesce.router.main import Server, router
from quiesce.router.service import Service
from quiesce.router.settings import RouterSettings
from quiesce.text.model import TextModel

from .fake_worker import FakeWorker, hand_off, say

TINY = TextModel.load("tiny")


class Deployment:
    """`prefill` and `decode` are the pair; `start` begins the router with further settings."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.prefill = self.worker("prefill-0", "prefill")
        self.decode = self.worker("decode-0", "decode", ("prefill-0",))
        self.workers = [self.prefill, self.decode]
        self.server: Server | None = None
        self._stack = contextlib.AsyncExitStack()

    def worker(self, name: str, role: str, peers: tuple[str, ...] = ()) -> FakeWorker:
        plan = hand_off if role == "prefill" else say("he", "llo")
        return FakeWorker(self.directory / f"{name}.sock", name, role, plan, peers)

    def second_prefill(self) -> FakeWorker:
        """One more, `prefill-1`, that decode pairs with. Before `start`."""
        second = self.worker("prefill-1", "prefill")
        self.workers.append(second)
        self.decode.peers = ("prefill-0", "prefill-1")
        return second

    async def start(self, *, ready: bool = True, text: TextModel = TINY, **settings: Any) -> httpx.AsyncClient:
        for worker in self.workers:
            await worker.start()
            self._stack.push_async_callback(worker.stop)
        addresses = tuple(worker.address for worker in self.workers)
        # Fake workers need not be kept from queues of their own, except where that is what is tested.
        basics = RouterSettings(
            port=0, worker=addresses, model="tiny", grace_s=1.0, prefill_window=1024, decode_window=1024
        )
        told = msgspec.structs.replace(basics, **settings)
        self.server = await self._stack.enter_async_context(router(told, text))
        serving = asyncio.ensure_future(self.server.serve())
        self._stack.push_async_callback(self._stop, serving)
        if ready:
            await self.until_ready()
        url = f"http://127.0.0.1:{self.server.port}"
        client = httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, limits=httpx.Limits(max_connections=None))
        return await self._stack.enter_async_context(client)

    async def until_ready(self) -> None:
        await self.until(lambda service: not service.readiness.why_not())

    async def until(self, true: Callable[[Service], bool]) -> None:
        """Wait for what the router learns from workers."""
        assert self.server is not None
        service = self.server.service
        async with asyncio.timeout(10):
            while not true(service):
                await service.fleet.wait_for_change()

    async def close(self) -> None:
        await self._stack.aclose()

    async def _stop(self, serving: Awaitable[None]) -> None:
        assert self.server is not None
        self.server.stop()
        await serving


@pytest.fixture
async def deployment() -> AsyncIterator[Deployment]:
    # Not tmp_path: its names are too long for a Unix socket when tests run in parallel.
    with tempfile.TemporaryDirectory(prefix=f"q{secrets.token_hex(2)}") as directory:
        deployment = Deployment(Path(directory))
        try:
            yield deployment
        finally:
            await deployment.close()
