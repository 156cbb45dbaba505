"""A router's door for workers that announce themselves, and what they hear."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quiesce.control.address import Address, show_address
from quiesce.control.security import LOCAL, Security
from quiesce.control.tcp_listener import TcpListener, open_listener
from quiesce.control.whereabouts import Places, Whereabouts
from quiesce.protocol.dispatch import DISPATCH_VERSION
from quiesce.protocol.registration import Register
from quiesce.router.fleet import Fleet
from quiesce.router.registry import Registry
from quiesce.worker.registering import Registrations

from .fake_worker import FakeWorker


class Door:
    """A registry that listens, and what it tells the fleet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fleet = Fleet([], model="tiny")
        self.where = Whereabouts(self._changed)
        self.counts: Counter[str] = Counter()
        self.registry = Registry(self.fleet, self.where, lambda outcome: self.counts.update([outcome]))
        self.places: list[Places] = []
        self._news = asyncio.Condition()

    def _changed(self, places: Places) -> None:
        self.places.append(places)
        self.fleet.expect(list(places))

    @contextlib.asynccontextmanager
    async def opened(self, security: Security = LOCAL, address: Address | None = None) -> AsyncIterator[Address]:
        listener = await open_listener(address or self.directory / "c.sock", self.registry.serve, security)
        there = listener.address if isinstance(listener, TcpListener) else listener.path
        self.registry.own.listens_at(there)
        tasks = [asyncio.ensure_future(self.fleet.run()), asyncio.ensure_future(self.registry.run())]
        try:
            yield there
        finally:
            await listener.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Told:
    """What a registered worker hears of prefill workers."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.heard: list[dict[str, str]] = []

    def __call__(self, router: str, places: Places) -> None:
        self.heard.append({name: show_address(address) for address, name in places.items()})
        self.queue.put_nowait(self.heard[-1])

    async def until(self, wanted: dict[str, str]) -> None:
        async with asyncio.timeout(20):
            while await self.queue.get() != wanted:
                pass


def announced(
    worker: FakeWorker, router: Address, told: Told | None = None, security: Security = LOCAL, hello: bytes = b""
) -> Registrations:
    who = Register(DISPATCH_VERSION, worker.role, worker.name, worker.incarnation, worker.address, "tiny", hello)
    return Registrations(who, [router], security, told or Told())


async def until(fleet: Fleet, *names: str) -> None:
    async with asyncio.timeout(20):
        while sorted(link.name for link in fleet.present) != sorted(names):
            await fleet.wait_for_change()


async def logged(caplog: pytest.LogCaptureFixture, message: str) -> None:
    async with asyncio.timeout(20):
        while message not in caplog.messages:  # noqa: ASYNC110 - a log awakes nobody
            await asyncio.sleep(0.005)
