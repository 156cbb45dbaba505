"""A pair that is gone for a moment costs a moment, not the request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce.protocol.dispatch import Load, Pong
from quiesce.router.fleet import Fleet
from quiesce.router.link import WorkerLink

from .asking import chat, error_of
from .conftest import Deployment
from .fake_worker import FakeWorker, nothing
from .test_link import WELCOME
from .test_silence import freeze

PATIENCE = "quiesce.router.generation._PATIENCE_S"


async def lose(deployment: Deployment, worker: FakeWorker) -> None:
    """Its streams are gone, and the router knows."""
    worker.drop()
    await deployment.until(lambda service: len(service.fleet.present) < len(deployment.workers))


def waiting(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a request waits for a pair."""
    assert deployment.server is not None
    fleet = deployment.server.service.fleet
    begun, had_pair_lately = asyncio.Event(), fleet.had_pair_lately

    def told() -> bool:
        begun.set()
        return had_pair_lately()

    monkeypatch.setattr(fleet, "had_pair_lately", told)
    return begun


async def test_a_retry_waits_for_the_only_pair_to_come_back(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [nothing]
    asked = asyncio.ensure_future(chat(client))
    await deployment.decode.submitted()
    deployment.decode.drop()
    assert (await asked).json()["choices"][0]["message"]["content"] == "hello"


async def test_a_first_try_waits_for_a_pair_that_was_here_a_moment_ago(deployment: Deployment) -> None:
    client = await deployment.start()
    await lose(deployment, deployment.decode)
    assert (await chat(client)).status_code == 200


async def test_it_waits_for_a_frozen_worker_too(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATIENCE, 60.0)
    client = await deployment.start()
    freeze(deployment, deployment.prefill)
    begun = waiting(deployment, monkeypatch)
    asked = asyncio.ensure_future(chat(client))
    await begun.wait()
    deployment.prefill.send(Pong(1))
    assert (await asked).status_code == 200


async def test_patience_ends(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATIENCE, 0.02)
    client = await deployment.start()
    freeze(deployment, deployment.decode)
    assert error_of(await chat(client), 503)["code"] == "no_workers"


async def test_it_ends_before_the_requests_own_time_does(deployment: Deployment) -> None:
    client = await deployment.start()
    freeze(deployment, deployment.decode)
    async with asyncio.timeout(0.9):  # less than the router's own patience
        error_of(await chat(client, timeout=0.01), 503)


async def test_a_server_that_stops_waits_for_no_worker(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATIENCE, 60.0)
    client = await deployment.start(grace_s=60.0)
    freeze(deployment, deployment.decode)
    begun = waiting(deployment, monkeypatch)
    asked = asyncio.ensure_future(chat(client))
    await begun.wait()
    assert deployment.server is not None
    deployment.server.stop()
    deployment.server.stop()
    assert error_of(await asked, 503)["code"] == "server_stopping"


def test_a_moment_is_a_few_seconds() -> None:
    """Measured from when the last pair went, and nobody waits for a pair that never was."""
    now_s = 100.0
    fleet = Fleet([Path("w.sock")], model="tiny", clock=lambda: now_s)
    link: WorkerLink = fleet.links[0]
    fleet.on_change()
    assert not fleet.had_pair_lately()
    link.welcome, link.load = WELCOME, Load(0, 0, 64)
    fleet.on_change()
    now_s = 1000.0
    assert fleet.had_pair_lately()
    link.welcome = None
    fleet.on_change()
    now_s = 1004.0
    fleet.on_change()
    assert fleet.had_pair_lately()
    now_s = 1006.0
    assert not fleet.had_pair_lately()
