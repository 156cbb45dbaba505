"""A try that failed and of which nobody has read anything: what waits for another, and who pays for it."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import httpx
import pytest

from quiesce.errors import RequestRejected
from quiesce.protocol.dispatch import Submit, Tokens
from quiesce.router.running import Owner, Run

from .asking import CHAT, chat, chat_body, error_of
from .conftest import Deployment
from .fake_worker import FakeWorker, nothing, say, words
from .tenancy import bearer, write_tenants

PATIENCE = "quiesce.router.generation._PATIENCE_S"
RETRY_PATIENCE = "quiesce.router.generation._RETRY_PATIENCE_S"
LIMIT = 1000


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh requests wait for nobody."""
    monkeypatch.setattr(PATIENCE, 0.0)
    monkeypatch.setattr(RETRY_PATIENCE, 0.02)


async def crash(deployment: Deployment) -> None:
    """Decode is gone with its socket, and the router knows."""
    await deployment.decode.stop()
    await deployment.until(lambda service: len(service.fleet.present) == 1)


async def test_what_had_begun_waits_longer_than_a_fresh_request(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY_PATIENCE, 60.0)
    client = await deployment.start()
    deployment.decode.plans = [say("half an", finish="")]
    begun = asyncio.ensure_future(chat(client))
    await deployment.decode.submitted()
    await crash(deployment)
    assert error_of(await chat(client), 503)["code"] == "no_workers"
    await deployment.decode.start()
    assert (await begun).json()["choices"][0]["message"]["content"] == "hello"


async def test_without_another_pair_the_failures_own_words_are_told(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plan = nothing
    begun = asyncio.ensure_future(chat(client))
    await deployment.decode.submitted()
    await crash(deployment)
    assert error_of(await begun, 502)["code"] == "worker_lost"
    metrics = (await client.get("/metrics")).text
    assert 'quiesce_requests_total{outcome="failed",role="router",worker="router"} 1.0' in metrics
    assert "no_workers" not in metrics


async def test_the_requests_own_time_ends_the_wait(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RETRY_PATIENCE, 60.0)
    client = await deployment.start()
    deployment.decode.plan = nothing
    begun = asyncio.ensure_future(chat(client, timeout=0.5))
    await deployment.decode.submitted()
    await crash(deployment)
    async with asyncio.timeout(30.0):  # less than the patience
        assert (await begun).status_code in (502, 504)


# ------------------------------------------------------------ who pays


async def start(deployment: Deployment, tmp_path: Path, **settings: Any) -> httpx.AsyncClient:
    tenants = write_tenants(tmp_path / "t.toml", a=f"tokens-per-minute = {LIMIT}")
    return await deployment.start(tenants=tenants, **settings)


async def ask(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(CHAT, json=chat_body(**({"max_tokens": 300} | fields)), headers=bearer("a"))


async def paid(deployment: Deployment, client: httpx.AsyncClient) -> tuple[float, float]:
    """Tokens of prompts and answers that are the tenant's, as metrics have it once nothing runs."""
    assert deployment.server is not None
    await deployment.server.service.stopping.idle()
    lines = (await client.get("/metrics")).text.splitlines()
    prompt, answer = (
        sum(float(line.split()[-1]) for line in lines if line.startswith(f"quiesce_tenant_{kind}_tokens_total{{"))
        for kind in ("prompt", "generated")
    )
    return prompt, answer


@pytest.mark.parametrize(("n", "retries"), [(1, 1), (1, 0), (2, 1)])
async def test_what_nobody_reads_is_not_the_tenants(
    deployment: Deployment, tmp_path: Path, n: int, retries: int
) -> None:
    """A document that does not come, whatever part of it was there."""
    client = await start(deployment, tmp_path, retries=retries)
    deployment.decode.plans = [say("x" * 200, finish=""), say("y" * 200)][:n]
    asked = asyncio.ensure_future(ask(client, n=n))
    await deployment.decode.submitted(n)
    await crash(deployment)
    error_of(await asked, 502)
    assert await paid(deployment, client) == (0.0, 0.0)
    await deployment.decode.start()
    await deployment.until_ready()
    answer = await ask(client)
    used = answer.json()["usage"]["prompt_tokens"] + 300
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) == LIMIT - used, "all that was taken was given back"


async def test_only_the_try_that_answers_is_paid(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY_PATIENCE, 60.0)
    client = await start(deployment, tmp_path)
    deployment.decode.plans = [say("x" * 200, finish="")]
    asked = asyncio.ensure_future(ask(client))
    await deployment.decode.submitted()
    deployment.decode.drop()
    usage = (await asked).json()["usage"]
    assert usage["completion_tokens"] == len("hello")
    assert await paid(deployment, client) == (usage["prompt_tokens"], usage["completion_tokens"])


async def test_a_client_that_leaves_between_two_tries_pays_for_none(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY_PATIENCE, 60.0)
    client = await start(deployment, tmp_path)
    deployment.decode.plans = [say("x" * 200, finish="")]
    asked = asyncio.ensure_future(ask(client))
    await deployment.decode.submitted()
    await crash(deployment)
    asked.cancel()
    assert await paid(deployment, client) == (0.0, 0.0)


async def test_what_a_stream_showed_before_it_failed_is_paid(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path)

    def breaks(worker: FakeWorker, submit: Submit) -> None:
        worker.send(Tokens(submit.request, words("shown")))
        worker.drop()

    deployment.decode.plan = breaks
    assert "worker_lost" in (await ask(client, stream=True)).text
    prompt, answer = await paid(deployment, client)
    assert prompt > 0
    assert answer == len("shown")


# ------------------------------------------------------------ who left meanwhile


async def test_nobody_is_told_of_a_refusal_whose_client_left_at_that_moment() -> None:
    """The log least of all: strangers could fill it."""
    untold = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: untold.append(context))

    async def refused() -> None:
        raise RequestRejected("no", code="prompt_too_long")

    run = Run(Owner(b""))
    asking = asyncio.ensure_future(run.unless_aborted(refused(), lambda: None))
    while run._working is None or not run._working.done():  # noqa: ASYNC110 - the very moment
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert asking.cancelled()
    run._working = None
    del asking
    await asyncio.sleep(0)  # the loop holds on to what woke us
    gc.collect()
    assert untold == []
