"""Workers that are connected and say nothing: they must not be given what others could do."""

from __future__ import annotations

import asyncio

import pytest

from quiesce.protocol.dispatch import Load, Pong
from quiesce.router import link as links
from quiesce.router.link import WorkerLink

from .asking import begun, chat, error_of
from .conftest import Deployment
from .fake_worker import FakeWorker, nothing, say

SIX_SECONDS = range(6)
"""One ping is sent each second."""
TO_THE_LAST_SECOND = range(links._GIVEN_UP_AT - len(SIX_SECONDS) - 1)


def freeze(deployment: Deployment, worker: FakeWorker) -> WorkerLink:
    """As SIGSTOP does: the stream stays, and nothing comes; then six seconds pass."""
    assert deployment.server is not None
    worker.frozen = True
    (link,) = [link for link in deployment.server.service.fleet.links if link.name == worker.name]
    for _ in SIX_SECONDS:
        link.ping()
    return link


async def all_is_heard(deployment: Deployment) -> None:
    """What workers have said until now. Else it is heard when they are frozen, and they answer again."""
    told = Load(0, 0, 4095)
    for worker in deployment.workers:
        worker.send(told)
    await deployment.until(lambda service: all(link.load == told for link in service.fleet.links))


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_frozen_worker_gets_no_new_requests_until_it_answers(
    deployment: Deployment, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quiesce.router.generation._PATIENCE_S", 0.01)
    client = await deployment.start()
    worker = {"prefill": deployment.prefill, "decode": deployment.decode}[role]
    freeze(deployment, worker)
    readiness = await client.get("/readiness")
    assert readiness.status_code == 503
    assert readiness.json()["reason"].startswith(f"{worker.name}: does not answer: nothing was heard from it since ")
    assert error_of(await chat(client), 503)["code"] == "no_workers"
    assert not deployment.decode.submits
    worker.send(Pong(1))
    await deployment.until_ready()
    assert (await chat(client)).status_code == 200


async def test_another_worker_is_used_instead(deployment: Deployment) -> None:
    """A frozen worker's last load is the lowest of all, since it does nothing."""
    second = deployment.worker("decode-1", "decode", ("prefill-0",))
    second.load = Load(3, 0, 4096)
    deployment.workers.append(second)
    client = await deployment.start()
    await deployment.until(lambda service: len(service.fleet.present) == 3)
    freeze(deployment, deployment.decode)
    assert (await chat(client)).status_code == 200
    assert (await client.get("/readiness")).status_code == 200
    assert not deployment.decode.submits


async def test_a_request_under_way_goes_on(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [nothing]
    asked = asyncio.ensure_future(chat(client))
    submit = await deployment.decode.submitted()
    freeze(deployment, deployment.decode)
    say("late")(deployment.decode, submit)
    assert (await asked).json()["choices"][0]["message"]["content"] == "late"


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_request_that_has_nobody_else_is_given_up_in_the_end(
    deployment: Deployment, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quiesce.router.generation._RETRY_PATIENCE_S", 0.01)
    client = await deployment.start()
    deployment.decode.plan = deployment.prefill.plan = nothing
    asked = asyncio.ensure_future(chat(client))
    submit = await deployment.decode.submitted()
    await all_is_heard(deployment)
    worker = {"prefill": deployment.prefill, "decode": deployment.decode}[role]
    link = freeze(deployment, worker)
    for _ in TO_THE_LAST_SECOND:
        link.ping()
    assert not asked.done()
    link.ping()
    assert error_of(await asked, 504)["code"] == "worker_silent"
    for each in (deployment.prefill, deployment.decode):
        assert (await each.cancelled()).request == submit.request


async def test_a_stream_that_has_begun_is_given_up_in_the_end(deployment: Deployment) -> None:
    second = deployment.worker("decode-1", "decode", ("prefill-0",))
    second.load = Load(3, 0, 4096)
    deployment.workers.append(second)
    client = await deployment.start()
    await deployment.until(lambda service: len(service.fleet.present) == 3)
    async with begun(client, deployment.decode) as lines:
        link = freeze(deployment, deployment.decode)
        for _ in TO_THE_LAST_SECOND:
            link.ping()
        link.ping()
        assert "worker_silent" in "".join([line async for line in lines])
    await deployment.decode.cancelled()


async def test_pings_do_not_pile_up(deployment: Deployment) -> None:
    await deployment.start()
    sent: list[object] = []
    (link,) = [link for link in deployment.server.service.fleet.links if link.name == "decode-0"]  # type: ignore[union-attr]
    link.send = sent.append  # type: ignore[method-assign]
    freeze(deployment, deployment.decode)
    for _ in range(1000):
        link.ping()
    assert len(sent) == len(SIX_SECONDS)


async def test_a_burst_is_spread_before_workers_tell_their_load(deployment: Deployment) -> None:
    """What the router itself has sent counts, or all of a burst goes to the worker whose last load was lowest."""
    second = deployment.worker("prefill-1", "prefill")
    second.load = Load(1, 0, 4096)
    deployment.workers.append(second)
    deployment.decode.peers = ("prefill-0", "prefill-1")
    client = await deployment.start()
    await deployment.until(lambda service: all(link.load.ready for link in service.fleet.links))
    deployment.decode.plan = deployment.prefill.plan = second.plan = nothing
    burst = [asyncio.ensure_future(chat(client)) for _ in range(8)]
    await deployment.decode.submitted(8)
    assert deployment.server is not None
    links = deployment.server.service.fleet.links
    assert [link.halves for link in links] == [4, 8, 4]
    for asked in burst:
        asked.cancel()
    await deployment.decode.cancelled(8)
    assert [link.halves for link in links] == [0, 0, 0]
