"""`POST /flush_cache`: asked of every worker, by whoever may change the server."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from quiesce.protocol.dispatch import Flush
from quiesce.router.app import EXCEPTION_HANDLERS
from quiesce.router.flushing import FlushEndpoint
from quiesce.router.pairs import misspoken

from .asking import OF_PAGES, OF_PEOPLE, error_of
from .conftest import Deployment
from .fake_worker import FakeWorker

FLUSH = "/flush_cache"


def asked(worker: FakeWorker) -> int:
    return sum(isinstance(frame, Flush) for frame in worker.seen)


async def test_every_worker_forgets(deployment: Deployment) -> None:
    client = await deployment.start()
    response = await client.post(FLUSH)
    assert (response.status_code, response.json()) == (200, {"status": "flushed"})
    assert [asked(worker) for worker in (deployment.prefill, deployment.decode)] == [1, 1]
    assert (await client.get(FLUSH)).status_code == 405


async def test_only_the_operator_may(deployment: Deployment) -> None:
    client = await deployment.start(admin_key="secret", api_key=("user",))
    for headers in ({}, {"authorization": "Bearer user"}, {"authorization": "Bearer secre"}):
        error_of(await client.post(FLUSH, headers=headers), 401)
    assert asked(deployment.decode) == 0
    response = await client.post(FLUSH, headers={"authorization": "Bearer secret"})
    assert response.status_code == 200


@pytest.mark.parametrize("headers", OF_PAGES)
async def test_no_page_may(deployment: Deployment, headers: dict[str, str]) -> None:
    """A browser lets any page send a POST without a body, also to a server that has no key."""
    client = await deployment.start()
    error = error_of(await client.post(FLUSH, headers=headers), 403)
    assert error["code"] == "cross_origin"
    assert asked(deployment.decode) == 0


@pytest.mark.parametrize("headers", OF_PEOPLE)
async def test_people_may(deployment: Deployment, headers: dict[str, str]) -> None:
    client = await deployment.start()
    assert (await client.post(FLUSH, headers=headers)).status_code == 200


async def test_who_still_reads_is_named(deployment: Deployment) -> None:
    await deployment.start()
    deployment.decode.flushes = False
    assert deployment.server is not None
    endpoint = FlushEndpoint(deployment.server.service, within_s=0.05)
    app = Starlette(routes=[Route(FLUSH, endpoint.flush, methods=["POST"])], exception_handlers=EXCEPTION_HANDLERS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as client:
        error = error_of(await client.post(FLUSH), 503)
    assert error["code"] == "cache_in_use"
    assert deployment.decode.name in error["message"]


async def test_who_speaks_another_version_is_named_and_not_asked(deployment: Deployment) -> None:
    """It might take the question for another one. All others forget."""
    client = await deployment.start()
    deployment.prefill.version = 1
    deployment.prefill.drop()
    await deployment.until(lambda service: any(misspoken(link) for link in service.fleet.links))
    error = error_of(await client.post(FLUSH), 503)
    assert error["code"] == "version_mismatch"
    assert deployment.prefill.name in error["message"]
    assert deployment.decode.name not in error["message"]
    assert [asked(worker) for worker in (deployment.prefill, deployment.decode)] == [0, 1]
