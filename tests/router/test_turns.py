"""Requests wait at the router, where no tenant's flood keeps another one's request from being served next."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from quiesce.protocol import fairness
from quiesce.protocol.dispatch import Load, Submit
from quiesce.protocol.messages import Fault

from .asking import CHAT, chat, chat_body, error_of
from .conftest import Deployment
from .fake_worker import hand_off, nothing, say
from .queueing import until, waiting
from .tenancy import bearer, write_tenants

FLOOD = 200


def ask(client: httpx.AsyncClient, tenant: str, **fields: Any) -> asyncio.Future[httpx.Response]:
    return asyncio.ensure_future(client.post(CHAT, json=chat_body(**fields), headers=bearer(tenant)))


def salts(deployment: Deployment) -> list[str]:
    """Of what decode was sent, in that order."""
    return [submit.salt for submit in deployment.decode.submits]


def finish(deployment: Deployment, submit: Submit) -> None:
    say("done")(deployment.decode, submit)


async def two_tenants(deployment: Deployment, tmp_path: Path, **settings: Any) -> httpx.AsyncClient:
    file = write_tenants(tmp_path / "tenants.toml", a="", b="", c="weight = 3")
    deployment.decode.plan = nothing
    return await deployment.start(tenants=file, **({"decode_window": 8} | settings))


async def test_a_flood_does_not_keep_another_tenant_waiting(deployment: Deployment, tmp_path: Path) -> None:
    client = await two_tenants(deployment, tmp_path)
    flood = [ask(client, "a") for _ in range(FLOOD)]
    await waiting(deployment, FLOOD - 8)
    await deployment.decode.submitted(8)
    assert len(deployment.decode.submits) == 8, "workers get what keeps them busy, and no more"
    one = ask(client, "b")
    await waiting(deployment, FLOOD - 7)
    finish(deployment, deployment.decode.submits[0])
    await deployment.decode.submitted(9)
    assert salts(deployment)[8] not in salts(deployment)[:8], "b's is served next"
    finish(deployment, deployment.decode.submits[8])
    assert (await one).status_code == 200
    deployment.decode.plan = say("done")
    for submit in list(deployment.decode.submits):
        finish(deployment, submit)
    assert {response.status_code for response in await asyncio.gather(*flood)} == {200}


async def test_shares_go_by_weight(deployment: Deployment, tmp_path: Path) -> None:
    client = await two_tenants(deployment, tmp_path, decode_window=1)
    first = ask(client, "b")
    await deployment.decode.submitted(1)
    others = [ask(client, tenant) for _ in range(24) for tenant in ("a", "c")]
    await waiting(deployment, 48)
    for number in range(1, 25):
        finish(deployment, deployment.decode.submits[number - 1])
        await deployment.decode.submitted(number + 1)
    served = salts(deployment)[1:]
    least, most = sorted(served.count(salt) for salt in set(served))
    assert least + most == 24
    assert least in (5, 6, 7), "a quarter, within one request"
    for task in (first, *others):
        task.cancel()


@pytest.mark.parametrize("way", ["prefill", "decode"])
async def test_each_worker_gets_what_keeps_it_busy(deployment: Deployment, way: str) -> None:
    """Prompts that are not handed off yet fill prefill's window, answers decode's."""
    deployment.decode.plan = nothing
    deployment.prefill.plan = nothing if way == "prefill" else hand_off
    client = await deployment.start(prefill_window=3, decode_window=5)
    asked = [asyncio.ensure_future(chat(client)) for _ in range(8)]
    sent = 3 if way == "prefill" else 5
    await waiting(deployment, 8 - sent)
    await deployment.decode.submitted(sent)
    await deployment.prefill.submitted(sent)
    assert len(deployment.decode.submits) == sent
    if way == "prefill":
        hand_off(deployment.prefill, deployment.prefill.submits[0])
    else:
        finish(deployment, deployment.decode.submits[0])
    await waiting(deployment, 7 - sent)
    await deployment.decode.submitted(sent + 1)
    for task in asked:
        task.cancel()


async def test_a_deadline_passes_in_the_queue(deployment: Deployment) -> None:
    """504, and no worker ever hears of it."""
    deployment.decode.plan = nothing
    client = await deployment.start(decode_window=1)
    first = asyncio.ensure_future(chat(client))
    await deployment.decode.submitted()
    assert error_of(await chat(client, timeout=0.05), 504)["code"] == "deadline_exceeded"
    finish(deployment, deployment.decode.submits[0])
    assert (await first).status_code == 200
    assert len(deployment.decode.submits) == 1


async def test_a_client_that_leaves_the_queue_is_forgotten(deployment: Deployment) -> None:
    deployment.decode.plan = nothing
    client = await deployment.start(decode_window=1)
    first = asyncio.ensure_future(chat(client))
    await deployment.decode.submitted()
    queued = asyncio.ensure_future(chat(client))
    await waiting(deployment, 1)
    queued.cancel()
    await waiting(deployment, 0)
    finish(deployment, deployment.decode.submits[0])
    assert (await first).status_code == 200
    assert len(deployment.decode.submits) == 1


async def test_a_full_queue_is_refused_and_says_when_to_come_back(deployment: Deployment, tmp_path: Path) -> None:
    """One tenant's full queue is nobody else's."""
    client = await two_tenants(deployment, tmp_path, decode_window=1, queue_per_tenant=4)
    flood = [ask(client, "a") for _ in range(5)]
    await waiting(deployment, 4)
    response = await client.post(CHAT, json=chat_body(), headers=bearer("a"))
    assert error_of(response, 429)["code"] == "queue_full"
    assert 1 <= int(response.headers["retry-after"]) <= 60
    other = ask(client, "b")
    await waiting(deployment, 5)
    first_sent = await deployment.decode.submitted()
    deployment.decode.plan = say("done")
    finish(deployment, first_sent)
    assert {each.status_code for each in await asyncio.gather(other, *flood)} == {200}


async def test_priority_is_vllms_the_lower_number_is_served_earlier(deployment: Deployment) -> None:
    deployment.decode.plan = nothing
    client = await deployment.start(decode_window=1)
    asked = [asyncio.ensure_future(chat(client))]
    await deployment.decode.submitted()
    for number, priority in enumerate((0, 7, -3, -3)):
        asked.append(asyncio.ensure_future(chat(client, priority=priority, seed=number)))
        await waiting(deployment, number + 1)
    for number in range(1, 5):
        finish(deployment, deployment.decode.submits[number - 1])
        await deployment.decode.submitted(number + 1)
    finish(deployment, deployment.decode.submits[4])
    await asyncio.gather(*asked)
    served = deployment.decode.submits[1:]
    assert [submit.sampling.seed for submit in served] == [2, 3, 0, 1]
    assert [submit.priority for submit in served] == [3, 3, 0, -7], "frames say the opposite: higher is earlier"
    await deployment.prefill.submitted(5)
    assert [submit.priority for submit in deployment.prefill.submits[1:]] == [3, 3, 0, -7]


async def test_what_can_be_served_does_not_wait_behind_what_cannot(deployment: Deployment, tmp_path: Path) -> None:
    """A long request fits one pair only, which is busy; another tenant's short one fits the other."""
    small = deployment.worker("decode-1", "decode", ("prefill-0",))
    small.pool_tokens, small.plan = 64, nothing
    deployment.workers.append(small)
    client = await two_tenants(deployment, tmp_path, decode_window=1)
    first = ask(client, "a", max_tokens=2000)
    await deployment.decode.submitted()
    second = ask(client, "a", max_tokens=2000)
    await waiting(deployment, 1)
    third = ask(client, "b", max_tokens=2)
    say("short")(small, await small.submitted())
    assert (await third).json()["choices"][0]["message"]["content"] == "short"
    deployment.decode.plan = say("long")
    finish(deployment, deployment.decode.submits[0])
    assert [(await each).status_code for each in (first, second)] == [200, 200]


async def test_whoever_waits_hears_when_nobody_can_serve_any_more(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quiesce.router.generation._LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr("quiesce.router.fleet._LATELY_S", 0.0)
    deployment.decode.plan = nothing
    client = await deployment.start(decode_window=1)
    first = asyncio.ensure_future(chat(client))
    await deployment.decode.submitted()
    queued = asyncio.ensure_future(chat(client))
    await waiting(deployment, 1)
    deployment.decode.send(Load(0, 0, 0, ready=False, reason="draining"))
    assert error_of(await queued, 503)["code"] == "no_workers"
    finish(deployment, deployment.decode.submits[0])
    assert (await first).status_code == 200


async def test_a_stop_ends_the_queue_in_words(deployment: Deployment) -> None:
    deployment.decode.plan = nothing
    client = await deployment.start(decode_window=1, grace_s=0.0)
    asked = [asyncio.ensure_future(chat(client)) for _ in range(3)]
    await waiting(deployment, 2)
    assert deployment.server is not None
    deployment.server.stop()
    for response in await asyncio.gather(*asked):
        assert error_of(response, 503)["code"] == "server_stopping"
    assert len(deployment.decode.submits) == 1


async def test_a_stop_lets_the_queue_finish_within_the_grace(deployment: Deployment) -> None:
    deployment.decode.plan = nothing
    client = await deployment.start(decode_window=1, grace_s=60.0)
    asked = [asyncio.ensure_future(chat(client)) for _ in range(3)]
    await waiting(deployment, 2)
    assert deployment.server is not None
    deployment.server.stop()
    first_sent = await deployment.decode.submitted()
    deployment.decode.plan = say("done")
    finish(deployment, first_sent)
    assert {response.status_code for response in await asyncio.gather(*asked)} == {200}


async def test_who_tries_again_does_not_queue_again(deployment: Deployment) -> None:
    """It has waited for its turn once, and goes where the others that wait cannot go yet."""
    deployment.decode.plans = [nothing, nothing, nothing]
    client = await deployment.start(decode_window=2)
    asked = [asyncio.ensure_future(chat(client, seed=number)) for number in range(4)]
    await waiting(deployment, 2)
    await deployment.decode.submitted(2)
    begun = deployment.decode.submits[0]
    deployment.decode.fail(begun.request, Fault.DECODE)
    await deployment.decode.submitted(4)
    seeds = [submit.sampling.seed for submit in deployment.decode.submits]
    assert begun.sampling.seed in seeds[2:4]
    deployment.decode.plan = say("done")
    for submit in deployment.decode.submits[1:]:
        finish(deployment, submit)
    assert {response.status_code for response in await asyncio.gather(*asked)} == {200}


async def test_all_answers_of_a_large_request_come(deployment: Deployment) -> None:
    """More than the queue holds: it is the request that is let in or not."""
    client = await deployment.start(decode_window=2, queue_per_tenant=1)
    answer = (await chat(client, n=100)).json()
    assert len(answer["choices"]) == 100


async def test_no_seat_is_lost(deployment: Deployment) -> None:
    """Clients that leave at any moment, also when their turn has just come, leave their room to others."""
    client = await deployment.start(decode_window=2, prefill_window=2)
    for round_number in range(20):
        asked = [asyncio.ensure_future(chat(client)) for _ in range(8)]
        for number, task in enumerate(asked):
            await asyncio.sleep(0)
            if (number + round_number) % 3 == 0:
                task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    await waiting(deployment, 0)
    assert deployment.server is not None
    service = deployment.server.service
    await until(service.fleet, "on_room", lambda: not service.fleet._tries)
    for link in service.fleet.links:
        assert (link.halves, link.reserved, sum(link.awaited.values())) == (0, 0, 0)
    assert not any(flow.waiting for flow in service.turns._queue.flows.values())


async def test_an_answer_that_was_longer_than_expected_is_settled(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plan = say("x" * 1000)
    assert deployment.server is not None
    before = deployment.server.service.turns._queue
    prompt = (await chat(client, max_tokens=1000)).json()["usage"]["prompt_tokens"]
    (flow,) = deployment.server.service.turns._queue.flows.values()
    assert flow.reached - before.reached == (prompt + 1000) * fairness.SCALE


async def test_the_queue_is_in_the_metrics(deployment: Deployment) -> None:
    deployment.decode.plan = nothing
    client = await deployment.start(decode_window=1)
    asked = [asyncio.ensure_future(chat(client)) for _ in range(3)]
    await waiting(deployment, 2)
    text = (await client.get("/metrics")).text
    assert 'quiesce_queued_requests{role="router",tenant="default",worker="router"} 2.0' in text
    assert 'quiesce_queue_seconds_count{role="router",tenant="default",worker="router"} 1.0' in text
    for task in asked:
        task.cancel()
