"""`POST /abort_request`: by the id in the answer, by the key that began it, and by nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from quiesce.protocol.dispatch import Tokens

from .asking import CHAT, chat_body, error_of
from .conftest import Deployment
from .fake_worker import hand_off, nothing, say, words

ABORT = "/abort_request"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def document(lines: AsyncIterator[str]) -> dict[str, object]:
    """The next event of a stream."""
    while not (line := await anext(lines)):
        pass
    event: dict[str, object] = json.loads(line.removeprefix("data: "))
    return event


async def abort(client: httpx.AsyncClient, rid: object, headers: dict[str, str] | None = None) -> httpx.Response:
    return await client.post(ABORT, json={"rid": rid}, headers=headers)


async def test_an_aborted_stream_ends_in_an_error_and_both_halves_are_told(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.prefill.plan, deployment.decode.plan = nothing, say("first", finish="")
    async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
        lines = response.aiter_lines()
        name = (await document(lines))["id"]
        assert (await abort(client, name)).json() == {"status": "aborted"}
        rest = [line async for line in lines if line]
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "request_aborted"
    for worker in (deployment.prefill, deployment.decode):
        assert (await worker.cancelled()).failure.code == "request_aborted"
    error_of(await abort(client, name), 404)
    metrics = (await client.get("/metrics")).text
    assert 'quiesce_requests_total{outcome="cancelled",role="router",worker="router"} 1.0' in metrics


async def test_whoever_waits_for_an_aborted_document_reads_an_error(deployment: Deployment) -> None:
    """Its client does not know the id yet, but the stream beside it shows that ids are per request."""
    client = await deployment.start()
    deployment.decode.plan = nothing
    asking = asyncio.ensure_future(client.post(CHAT, json=chat_body()))
    await deployment.decode.submitted()
    assert deployment.server is not None
    (name,) = deployment.server.service.running._runs
    assert (await abort(client, name)).status_code == 200
    assert error_of(await asking, 499)["code"] == "request_aborted"
    assert (await deployment.decode.cancelled()).failure.code == "request_aborted"


async def test_all_answers_of_a_request_end_with_it(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plan = nothing
    asking = asyncio.ensure_future(client.post(CHAT, json=chat_body(n=3)))
    await deployment.decode.submitted(3)
    assert deployment.server is not None
    (name,) = deployment.server.service.running._runs
    await abort(client, name)
    error_of(await asking, 499)
    await deployment.decode.cancelled(3)
    assert {cancel.failure.code for cancel in deployment.decode.cancels} == {"request_aborted"}


async def test_only_the_key_that_began_a_request_aborts_it(deployment: Deployment) -> None:
    client = await deployment.start(api_key=("one", "two"))
    deployment.decode.plan = say("first", finish="")
    async with client.stream("POST", CHAT, json=chat_body(stream=True), headers=bearer("one")) as response:
        lines = response.aiter_lines()
        name = (await document(lines))["id"]
        error_of(await abort(client, name), 401)
        assert error_of(await abort(client, name, bearer("two")), 404)["code"] == "request_not_found"
        request = deployment.decode.submits[0].request
        deployment.decode.send(Tokens(request, words(" more"), "stop"))
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert deployment.decode.cancels == []


async def test_a_name_that_the_client_chose_is_no_id(deployment: Deployment) -> None:
    """Neither `x-request-id` nor a `rid` in the body: two clients may choose the same one."""
    client = await deployment.start()
    deployment.decode.plan = say("first", finish="")
    mine = {"x-request-id": "mine"}
    async with client.stream("POST", CHAT, json=chat_body(stream=True, rid="mine"), headers=mine) as response:
        assert response.headers["x-request-id"] == "mine"
        lines = response.aiter_lines()
        name = str((await document(lines))["id"])
        for wrong in ("mine", name[:-1], name.upper(), deployment.decode.submits[0].request):
            assert error_of(await abort(client, wrong), 404)["param"] == "rid"
        assert (await abort(client, name)).status_code == 200


@pytest.mark.parametrize("body", [{}, {"rid": ""}, {"rid": 7}, {"rid": "x" * 300}, {"abort_all": False}])
async def test_what_names_no_request_is_refused(deployment: Deployment, body: dict[str, object]) -> None:
    client = await deployment.start()
    assert error_of(await client.post(ABORT, json=body), 400)["param"] == "rid"


async def test_the_admin_key_aborts_whatever_runs(deployment: Deployment) -> None:
    client = await deployment.start(api_key=("one", "two"), admin_key="the operator's own key")
    deployment.decode.plan = nothing
    asking = [asyncio.ensure_future(client.post(CHAT, json=chat_body(), headers=bearer(key))) for key in ("one", "two")]
    await deployment.decode.submitted(2)
    error_of(await client.post(ABORT, json={"abort_all": True}, headers=bearer("one")), 403)
    admin = bearer("the operator's own key")
    assert (await client.post(ABORT, json={"abort_all": True}, headers=admin)).status_code == 200
    for answer in asking:
        assert error_of(await answer, 499)["code"] == "request_aborted"
    error_of(await client.post(ABORT, json={"rid": "unknown"}, headers=admin), 404)


async def test_an_aborted_request_leaves_the_others_alone(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.prefill.plan = hand_off
    deployment.decode.plans = [say("first", finish="")]
    async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
        name = (await document(response.aiter_lines()))["id"]
        other = await client.post(CHAT, json=chat_body())
        await abort(client, name)
    assert other.json()["choices"][0]["message"]["content"] == "hello"


# ---------------------------------------------------------------- x-request-id


@pytest.mark.parametrize("name", ["a", "trace-7/b:c_d.e@f+g=", "x" * 128])
async def test_a_clients_name_is_said_again(deployment: Deployment, name: str) -> None:
    client = await deployment.start()
    for path in ("/v1/models", "/nowhere"):
        assert (await client.get(path, headers={"x-request-id": name})).headers["x-request-id"] == name
    assert (await client.post(CHAT, content="{", headers={"x-request-id": name})).headers["x-request-id"] == name


@pytest.mark.parametrize("name", ["", "x" * 129, "two words", "semi;colon", "<b>", "-first", "\xe9"])
async def test_a_name_that_logs_cannot_bear_is_replaced(deployment: Deployment, name: str) -> None:
    client = await deployment.start()
    response = await client.get("/v1/models", headers=[(b"x-request-id", name.encode("latin-1"))])
    assert response.headers["x-request-id"].startswith("router-")


async def test_logs_bring_both_names_together(deployment: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    client = await deployment.start()
    with caplog.at_level("INFO", "quiesce.router"):
        answer = (await client.post(CHAT, json=chat_body(), headers={"x-request-id": "theirs"})).json()
    told = [getattr(record, "ids", {}) for record in caplog.records]
    assert {"request": answer["id"], "client_request": "theirs"} in told
