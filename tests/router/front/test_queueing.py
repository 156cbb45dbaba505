"""Requests through fronts wait their turn among everybody's, each pair's by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from quiesce.protocol.dispatch import Submit
from quiesce.router.front.service import FRONTS

from ..asking import chat, chat_body, error_of
from ..fake_worker import FakeWorker, nothing, say
from ..queueing import waiting
from .conftest import BEARER, CHAT, Fronts

Both = asyncio.Future[tuple[httpx.Response, httpx.Response]]


def ask(fronts: Fronts, **fields: Any) -> Both:
    return asyncio.ensure_future(fronts.chat(**fields))


def finish(worker: FakeWorker, submit: Submit) -> None:
    say("done")(worker, submit)


async def test_a_flood_through_fronts_does_not_keep_others_waiting(fronts: Fronts) -> None:
    fronts.deployment.decode.plan = nothing
    await fronts.start(decode_window=4)
    decode = fronts.deployment.decode
    flood = [ask(fronts) for _ in range(20)]
    await waiting(fronts.deployment, 16)
    await decode.submitted(4)
    assert len(decode.submits) == 4, "workers get what keeps them busy, and no more"
    (load,) = (await fronts.decode.get("/v1/loads")).json()["loads"]
    assert load["num_waiting_reqs"] == 16, "whoever chooses workers sees who waits for them here"
    other = asyncio.ensure_future(chat(fronts.public))
    await waiting(fronts.deployment, 17)
    finish(decode, decode.submits[0])
    assert (await decode.submitted(5)).salt != FRONTS.salt, "the other tenant's is next"
    finish(decode, decode.submits[4])
    assert (await other).status_code == 200
    decode.plan = say("done")
    for submit in list(decode.submits):
        finish(decode, submit)
    answers = [response.status_code for legs in await asyncio.gather(*flood) for response in legs]
    assert answers == [200] * 40


async def test_who_waits_for_a_full_pair_keeps_nobody_from_another(fronts: Fronts) -> None:
    second = fronts.deployment.worker("decode-1", "decode", ("prefill-0",))
    fronts.deployment.workers.append(second)
    fronts.deployment.decode.plan = nothing
    await fronts.start(decode_window=1)
    await fronts.deployment.until(lambda service: len(service.fleet.pairs()) == 2)
    stuck = [ask(fronts) for _ in range(3)]
    await waiting(fronts.deployment, 2)
    url = f"http://127.0.0.1:{fronts.ports[2]}"
    async with httpx.AsyncClient(base_url=url, timeout=20, trust_env=False, headers=BEARER) as front:
        answer = await front.post(CHAT, json=chat_body(**fronts.bootstrap()))
    assert answer.status_code == 200
    for legs in stuck:
        legs.cancel()


async def test_a_full_queue_is_told_to_both_legs(fronts: Fronts) -> None:
    fronts.deployment.decode.plan = nothing
    await fronts.start(decode_window=1, queue_per_tenant=1)
    running, queued = ask(fronts), ask(fronts)
    await waiting(fronts.deployment, 1)
    prefill, decode = await fronts.chat()
    assert error_of(prefill, 429)["code"] == error_of(decode, 429)["code"] == "queue_full"
    assert int(decode.headers["retry-after"]) >= 1
    for legs in (running, queued):
        legs.cancel()


async def test_a_deadline_passes_in_the_queue(fronts: Fronts) -> None:
    """504, and no worker ever hears of it."""
    fronts.deployment.decode.plan = nothing
    await fronts.start(decode_window=1)
    running = ask(fronts)
    await fronts.deployment.decode.submitted()
    _, decode = await fronts.chat(timeout=0.01)
    assert error_of(decode, 504)["code"] == "deadline_exceeded"
    assert len(fronts.deployment.decode.submits) == 1
    running.cancel()


async def test_who_leaves_is_out_of_the_queue(fronts: Fronts) -> None:
    fronts.deployment.decode.plan = nothing
    await fronts.start(decode_window=1)
    running, queued = ask(fronts), ask(fronts)
    await waiting(fronts.deployment, 1)
    queued.cancel()
    await waiting(fronts.deployment, 0)
    running.cancel()


@pytest.mark.parametrize("path", ["/health", "/health_generate"])
async def test_health_does_not_queue(fronts: Fronts, path: str) -> None:
    alone = fronts.deployment.worker("aggregated-0", "aggregated")
    alone.plan = nothing
    fronts.deployment.workers[:] = [alone]
    await fronts.start(decode_window=1)
    asked = [asyncio.ensure_future(fronts.decode.post(CHAT, json=chat_body())) for _ in range(2)]
    await waiting(fronts.deployment, 1)
    assert (await fronts.decode.get(path)).status_code == 200
    for each in asked:
        each.cancel()
