"""Circuit breakers at work: who is asked, who is probed, and that clients are never the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from quiesce.protocol.breaker import Phase
from quiesce.protocol.dispatch import Submit
from quiesce.protocol.messages import Fault

from .asking import chat, error_of
from .conftest import Deployment
from .fake_worker import FakeWorker, OnSubmit, fail, hand_off, nothing, say

ENOUGH = 3
NEVER_S = 3600.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes are repeated soon; requests do not wait long for a pair."""
    monkeypatch.setattr("quiesce.router.breakers._pause_s", lambda turn: 0.0 if turn == 0 else 0.02)
    monkeypatch.setattr("quiesce.router.generation._PATIENCE_S", 0.01)


async def ask(client: httpx.AsyncClient, prompts: Iterator[int]) -> int:
    """A prompt that was never asked; the status."""
    return (await chat(client, messages=[{"role": "user", "content": f"number {next(prompts)}"}])).status_code


@pytest.fixture
def prompts() -> Iterator[int]:
    return iter(range(1_000_000))


def counted(worker: FakeWorker, plan: OnSubmit) -> list[Submit]:
    """From now on probes are answered by `plan`, and kept."""
    probes = list[Submit]()

    def on_submit(worker: FakeWorker, submit: Submit) -> None:
        probes.append(submit)
        plan(worker, submit)

    worker.probe_plan = on_submit
    return probes


async def until_phase(deployment: Deployment, name: str, *phases: Phase) -> None:
    await deployment.until(lambda service: name in service.fleet.breakers.names_in(*phases))


async def until_closed(deployment: Deployment) -> None:
    others = [phase for phase in Phase if phase is not Phase.CLOSED]
    await deployment.until(lambda service: not service.fleet.breakers.names_in(*others))


async def test_a_worker_that_fails_probes_too_gets_nothing_until_one_passes(
    deployment: Deployment, prompts: Iterator[int]
) -> None:
    client = await deployment.start(retries=0, breaker_failures=ENOUGH)
    deployment.decode.plan = deployment.decode.probe_plan = fail(fault=Fault.DECODE)
    deployment.prefill.plan = nothing
    for _ in range(ENOUGH):
        assert await ask(client, prompts) == 500
    await until_phase(deployment, "decode-0", Phase.OPEN, Phase.HALF_OPEN)
    submits = [len(worker.submits) for worker in deployment.workers]
    response = await chat(client)
    assert error_of(response, 503)["code"] == "no_workers"
    assert response.headers["retry-after"] == "1"
    reason = (await client.get("/readiness")).json()["reason"]
    named, cause, more = reason.split("; ")
    assert named == "circuit breakers are open: decode-0"
    assert cause == "a test generation through prefill-0 and decode-0 failed: It went boom"
    assert more == "the workers' logs say more"
    assert [len(worker.submits) for worker in deployment.workers] == submits, "never half a dispatch"

    deployment.decode.plan, deployment.prefill.plan = say("hello"), hand_off
    deployment.decode.probe_plan = say("ok", finish="length")
    await until_closed(deployment)
    assert [len(worker.submits) for worker in deployment.workers] == submits, "no client was the test"
    assert await ask(client, prompts) == 200


async def test_what_one_tenant_asks_closes_nobodys_door(deployment: Deployment, prompts: Iterator[int]) -> None:
    """Every answer fails, for whatever reason; the router's own generation does not."""
    client = await deployment.start(retries=0, breaker_failures=ENOUGH)
    deployment.decode.plan = fail(fault=Fault.DECODE)
    probes = counted(deployment.decode, say("ok", finish="length"))
    for turn in range(1, 4):
        for _ in range(ENOUGH):
            assert await ask(client, prompts) == 500
        await until_closed(deployment)
        assert len(probes) == turn
    deployment.decode.plan = say("hello")
    assert await ask(client, prompts) == 200


@pytest.mark.parametrize(
    "plan",
    [
        fail(fault=Fault.CLIENT, status=400, rejected=True),
        fail("queue_full", fault=Fault.DECODE, status=429, rejected=True),
        fail("worker_draining", fault=Fault.QUIESCE, status=503, rejected=True),
        fail(fault=Fault.ROUTER),
    ],
)
async def test_what_is_not_a_peers_own_failure_does_not_count(
    deployment: Deployment, prompts: Iterator[int], plan: OnSubmit
) -> None:
    client = await deployment.start(retries=0, breaker_failures=1)
    deployment.decode.plan = plan
    probes = counted(deployment.decode, nothing)
    for _ in range(3):
        assert await ask(client, prompts) >= 400
    assert not probes


async def test_clients_that_leave_and_their_deadlines_do_not_count(
    deployment: Deployment, prompts: Iterator[int]
) -> None:
    client = await deployment.start(breaker_failures=1)
    deployment.prefill.plan = deployment.decode.plan = nothing
    probes = counted(deployment.decode, nothing)
    assert (await chat(client, timeout=0.02)).status_code == 504
    asked = asyncio.ensure_future(ask(client, prompts))
    await deployment.decode.submitted(2)
    asked.cancel()
    await deployment.decode.cancelled(2)
    assert not probes


async def test_a_request_counts_once(deployment: Deployment, prompts: Iterator[int]) -> None:
    """At its first try, however often it is tried, and however often the same is sent."""
    second = deployment.worker("decode-1", "decode", ("prefill-0",))
    deployment.workers.append(second)
    client = await deployment.start(retries=3, breaker_failures=2)
    await deployment.until(lambda service: len(service.fleet.pairs()) == 2)
    deployment.decode.plan = second.plan = fail(fault=Fault.DECODE)
    probes = [counted(worker, nothing) for worker in (deployment.decode, second)]
    for _ in range(3):
        assert (await chat(client)).status_code == 500
    assert probes == [[], []]
    for _ in range(4):
        assert await ask(client, prompts) == 500
    await deployment.until(lambda service: bool(service.fleet.breakers.names_in(Phase.SUSPECTED)))


async def test_the_other_pair_serves(deployment: Deployment, prompts: Iterator[int]) -> None:
    """Nobody is asked for half a request with a prefill whose breaker is open."""
    deployment.second_prefill()
    client = await deployment.start(retries=0, breaker_failures=1)
    await deployment.until(lambda service: len(service.fleet.pairs()) == 2)
    deployment.decode.plan = lambda worker, submit: (
        None if submit.prefill == "prefill-0" else say("hello")(worker, submit)
    )
    deployment.prefill.plan = deployment.prefill.probe_plan = fail(fault=Fault.PREFILL)
    deployment.decode.probe_plan = lambda worker, submit: (
        None if submit.prefill == "prefill-0" else say("ok", finish="length")(worker, submit)
    )
    while await ask(client, prompts) == 200:
        pass
    await until_phase(deployment, "prefill-0", Phase.OPEN, Phase.HALF_OPEN)
    before = len(deployment.prefill.submits)
    assert [await ask(client, prompts) for _ in range(4)] == [200] * 4
    assert len(deployment.prefill.submits) == before
    text = (await client.get("/metrics")).text
    assert 'quiesce_breaker_moves_total{breaker="prefill-0",phase="open",role="router",worker="router"} ' in text
    assert 'quiesce_breaker{breaker="prefill-0",phase="closed",role="router",worker="router"} 0.0' in text
    assert (await client.get("/readiness")).status_code == 200


async def test_who_is_suspected_is_asked_last(deployment: Deployment, prompts: Iterator[int]) -> None:
    second = deployment.worker("decode-1", "decode", ("prefill-0",))
    deployment.workers.append(second)
    client = await deployment.start(retries=0, breaker_failures=1)
    await deployment.until(lambda service: len(service.fleet.pairs()) == 2)
    deployment.decode.probe_plan = nothing
    deployment.decode.plans = [fail(fault=Fault.DECODE)]
    while await ask(client, prompts) == 200:
        pass
    await until_phase(deployment, "decode-0", Phase.SUSPECTED)
    before = len(deployment.decode.submits)
    assert [await ask(client, prompts) for _ in range(4)] == [200] * 4
    assert len(deployment.decode.submits) == before
    await second.stop()
    await deployment.until(lambda service: len(service.fleet.pairs()) == 1)
    assert await ask(client, prompts) == 200, "who else"
    await until_closed(deployment)  # what it answered speaks for it


async def test_a_new_life_begins_closed(
    deployment: Deployment, prompts: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await deployment.start(retries=0, breaker_failures=1)
    deployment.prefill.plan = deployment.prefill.probe_plan = fail(fault=Fault.PREFILL)
    deployment.decode.plan = nothing
    assert await ask(client, prompts) == 500
    await until_phase(deployment, "prefill-0", Phase.OPEN, Phase.HALF_OPEN)
    monkeypatch.setattr("quiesce.router.breakers._pause_s", lambda turn: NEVER_S)
    deployment.prefill.plan, deployment.prefill.probe_plan = hand_off, hand_off
    deployment.decode.plan = say("hello")
    deployment.prefill.drop()
    await until_closed(deployment)
    await deployment.until_ready()
    shown = [line for line in (await client.get("/metrics")).text.splitlines() if line.startswith("quiesce_breaker{")]
    assert [line for line in shown if 'phase="closed"' in line] == [line for line in shown if line.endswith(" 1.0")]
    assert all('breaker="prefill-0"' in line for line in shown), "no series is left of the old life"
    assert await ask(client, prompts) == 200


async def test_an_answer_that_a_stop_string_ends_is_an_answer(deployment: Deployment, prompts: Iterator[int]) -> None:
    client = await deployment.start(retries=0, breaker_failures=2)
    probes = counted(deployment.decode, nothing)
    for _ in range(3):
        deployment.decode.plans = [fail(fault=Fault.DECODE), say("he", finish="")]
        assert await ask(client, prompts) == 500
        assert (await chat(client, stop=["e"])).status_code == 200
    assert not probes
