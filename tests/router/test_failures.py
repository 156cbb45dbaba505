from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from quiesce.protocol.dispatch import HandedOff, Submit, Tokens
from quiesce.protocol.messages import Fault

from .asking import CHAT, begun, chat, chat_body, error_of, events, streamed_text, until_said
from .conftest import Deployment
from .fake_worker import FakeWorker, fail, nothing, say, words

# ------------------------------------------------------------ the client leaves


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_the_first_token_cancels_both_halves(
    deployment: Deployment, stream: bool
) -> None:
    client = await deployment.start()
    deployment.prefill.plans, deployment.decode.plans = [nothing], [nothing]
    asked = asyncio.ensure_future(chat(client, stream=stream))
    submit = await deployment.decode.submitted()
    asked.cancel()
    for worker in deployment.workers:
        cancel = await worker.cancelled()
        assert (cancel.request, cancel.failure.code) == (submit.request, "client_closed_request")


async def test_a_client_that_leaves_during_the_stream_cancels_decode(deployment: Deployment) -> None:
    """Prefill has nothing left to do: decode has committed."""
    client = await deployment.start()
    async with begun(client, deployment.decode):
        pass
    assert (await deployment.decode.cancelled()).failure.fault is Fault.CLIENT
    assert not deployment.prefill.cancels


async def test_after_clients_left_nothing_is_remembered(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.prefill.plan = deployment.decode.plan = nothing
    asked = [asyncio.ensure_future(chat(client)) for _ in range(20)]
    await deployment.decode.submitted(20)
    for task in asked:
        task.cancel()
    await deployment.decode.cancelled(20)
    assert deployment.server is not None
    assert not deployment.server.service.fleet._tries


# ------------------------------------------------------------ a half fails

Break = Callable[[Deployment, Submit], Awaitable[None]]


async def prefill_fails(deployment: Deployment, submit: Submit) -> None:
    deployment.prefill.fail(submit.request, Fault.PREFILL)


async def decode_fails(deployment: Deployment, submit: Submit) -> None:
    deployment.decode.fail(submit.request, Fault.DECODE)


async def prefill_dies(deployment: Deployment, submit: Submit) -> None:
    deployment.prefill.drop()


async def decode_dies(deployment: Deployment, submit: Submit) -> None:
    deployment.decode.drop()


async def decode_dies_after_the_hand_off(deployment: Deployment, submit: Submit) -> None:
    deployment.prefill.send(HandedOff(submit.request))
    deployment.decode.drop()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("breaks", "status", "code", "survivor"),
    [
        (prefill_fails, 500, "boom", "decode"),
        (decode_fails, 500, "boom", "prefill"),
        (prefill_dies, 502, "worker_lost", "decode"),
        (decode_dies, 502, "worker_lost", "prefill"),
        (decode_dies_after_the_hand_off, 502, "worker_lost", ""),
    ],
)
async def test_before_the_first_token_the_client_gets_the_error_and_the_other_half_is_cancelled(
    deployment: Deployment, breaks: Break, status: int, code: str, survivor: str, stream: bool
) -> None:
    """A stream has not begun then, so its client sees a status too."""
    client = await deployment.start(retries=0)
    deployment.prefill.plans, deployment.decode.plans = [nothing], [nothing]
    asked = asyncio.ensure_future(chat(client, stream=stream))
    await deployment.prefill.submitted()
    submit = await deployment.decode.submitted()
    await breaks(deployment, submit)
    assert error_of(await asked, status)["code"] == code
    if survivor:
        assert (await getattr(deployment, survivor).cancelled()).failure.code == code


@pytest.mark.parametrize("breaks", [decode_fails, decode_dies])
async def test_after_the_first_token_the_stream_ends_with_an_error(deployment: Deployment, breaks: Break) -> None:
    """Never a retry, never a silent end, never [DONE]."""
    client = await deployment.start(retries=3)
    async with begun(client, deployment.decode) as lines:
        await breaks(deployment, deployment.decode.submits[0])
        rest = [line async for line in lines if line]
    assert len(rest) == 1
    assert '"error"' in rest[0]
    assert len(deployment.decode.submits) == 1


@pytest.mark.parametrize("breaks", [prefill_fails, prefill_dies])
async def test_prefills_end_matters_no_more_after_the_first_token(deployment: Deployment, breaks: Break) -> None:
    client = await deployment.start()
    deployment.prefill.plans, deployment.decode.plans = [nothing], [say("he", finish="")]
    async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
        lines = response.aiter_lines()
        await until_said(lines, "he")
        submit = deployment.decode.submits[0]
        await breaks(deployment, submit)
        deployment.decode.send(Tokens(submit.request, words("llo"), "stop"))
        rest = [line async for line in lines if line]
    assert "llo" in rest[0]
    assert rest[-1] == "data: [DONE]"


# ------------------------------------------------------------ retries


async def test_a_retry_takes_a_fresh_room_and_id(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [fail(fault=Fault.TRANSPORT)]
    assert (await chat(client, seed=5)).json()["choices"][0]["message"]["content"] == "hello"
    first, second = deployment.decode.submits
    assert first.room != second.room
    assert first.request != second.request
    assert first.token_ids == second.token_ids
    assert "quiesce_retries_total" in (await client.get("/metrics")).text


async def test_retries_end(deployment: Deployment) -> None:
    client = await deployment.start(retries=2)
    deployment.decode.plan = fail(fault=Fault.DECODE, status=503)
    assert error_of(await chat(client), 503)["code"] == "boom"
    assert len(deployment.decode.submits) == 3


@pytest.mark.parametrize(
    "plan", [fail(fault=Fault.CLIENT, status=400, rejected=True), fail("queue_full", status=429, rejected=True)]
)
async def test_no_retry_for_the_clients_fault_nor_at_the_same_full_queue(deployment: Deployment, plan: object) -> None:
    client = await deployment.start()
    deployment.prefill.plan = nothing
    deployment.decode.plan = plan  # type: ignore[assignment]
    response = await chat(client)
    assert response.status_code in (400, 429)
    assert ("retry-after" in response.headers) == (response.status_code == 429)
    assert len(deployment.decode.submits) == 1
    assert (await deployment.prefill.cancelled()).request == deployment.decode.submits[0].request


async def test_a_retry_prefers_workers_that_have_not_failed(deployment: Deployment) -> None:
    second = deployment.second_prefill()
    client = await deployment.start()
    both: list[FakeWorker] = [deployment.prefill, second]
    for worker in both:
        worker.plan = fail(fault=Fault.PREFILL)
    deployment.decode.plan = nothing
    for _ in range(3):
        assert (await chat(client)).status_code == 500
    assert [len(worker.submits) for worker in both] == [3, 3]


async def test_load_is_spread(deployment: Deployment) -> None:
    second = deployment.second_prefill()
    client = await deployment.start()
    for _ in range(6):
        await chat(client)
    assert len(deployment.prefill.submits) == len(second.submits) == 3


# ------------------------------------------------------------ deadlines, new lives


async def test_a_deadline_cancels_both_halves(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.prefill.plans, deployment.decode.plans = [nothing], [nothing]
    assert error_of(await chat(client, timeout=0.05), 504)["code"] == "deadline_exceeded"
    for worker in deployment.workers:
        assert (await worker.cancelled()).failure.code == "deadline_exceeded"
    timeout_s = deployment.decode.submits[0].timeout_s
    assert timeout_s is not None
    assert timeout_s <= 0.05


async def test_a_new_life_of_a_worker_serves_after_it_was_proved(deployment: Deployment) -> None:
    client = await deployment.start()
    for worker in deployment.workers:
        worker.drop()
    with contextlib.suppress(TimeoutError):
        await deployment.until(lambda service: bool(service.readiness.why_not()))
    await deployment.until_ready()
    assert streamed_text(events(await chat(client, stream=True))) == "hello"


async def test_an_unexpected_error_is_a_500_without_details(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The halves are told that it is the router's fault, and the next request is served."""
    client = await deployment.start()
    deployment.prefill.plans, deployment.decode.plans = [nothing], [say("he", finish="")]
    with monkeypatch.context() as patch:
        patch.setattr("quiesce.router.answer.Answer.push", lambda *_: 1 / 0)
        error = error_of(await chat(client), 500)
    assert (error["code"], error["message"]) == ("internal_error", "Internal error.")
    assert (await deployment.decode.cancelled()).failure.fault is Fault.ROUTER
    assert (await chat(client)).status_code == 200
