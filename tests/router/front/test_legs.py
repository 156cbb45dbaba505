"""Two HTTP requests of another router become one of ours: they meet by its room, and workers never see that."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from quiesce.protocol.dispatch import HandedOff
from quiesce.protocol.messages import Fault
from quiesce.router.front.service import FRONTS

from ..asking import chat_body, error_of, events, streamed_text
from ..fake_worker import FakeWorker, fail, nothing, say
from .conftest import CHAT, Fronts


async def test_both_legs_are_one_request(fronts: Fronts) -> None:
    await fronts.start()
    bootstrap = fronts.bootstrap()
    prefill, decode = await fronts.both(CHAT, chat_body(**bootstrap))
    assert decode.json()["choices"][0]["message"]["content"] == "hello"
    assert prefill.json()["meta_info"]["handed_off"] is True
    halves = [worker.submits for worker in (fronts.deployment.prefill, fronts.deployment.decode)]
    assert halves[0] == halves[1]
    (submit,) = halves[0]
    assert submit.prefill == "prefill-0"
    assert submit.room != bootstrap["bootstrap_room"]
    assert submit.sampling.seed is not None
    await fronts.public.post(CHAT, json=chat_body())
    assert fronts.deployment.decode.submits[1].salt != submit.salt == FRONTS.salt, "no cached prefix is shared"


async def test_legs_may_stream(fronts: Fronts) -> None:
    await fronts.start()
    prefill, decode = await fronts.chat(stream=True)
    assert streamed_text(events(decode)) == "hello"
    assert events(prefill) == [{"meta_info": prefill_meta(), "text": ""}]


def prefill_meta() -> dict[str, Any]:
    return {"handed_off": True, "input_token_logprobs": [], "output_token_logprobs": []}


@pytest.mark.parametrize("first", ["prefill", "decode"])
async def test_legs_come_in_any_order(fronts: Fronts, first: str) -> None:
    """Prefill's may even come when the whole answer is out."""
    await fronts.start()
    body = chat_body(**fronts.bootstrap())
    one = asyncio.ensure_future(getattr(fronts, first).post(CHAT, json=body))
    if first == "decode":
        await asyncio.wait({one})
    else:
        await until_counted(fronts, 1)
    other = await (fronts.decode if first == "prefill" else fronts.prefill).post(CHAT, json=body)
    assert ((await one).status_code, other.status_code) == (200, 200)


async def until_counted(fronts: Fronts, requests: int) -> None:
    """Requests that have come, legs that wait for others included. Nothing announces them."""
    assert fronts.deployment.server is not None
    stopping = fronts.deployment.server.service.stopping
    async with asyncio.timeout(10):
        while stopping._running < requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_prefills_leg_ends_when_its_half_does(fronts: Fronts) -> None:
    """At decode's first token, not at its last."""
    await fronts.start()
    fronts.deployment.decode.plan = say("first", finish="")
    body = chat_body(**fronts.bootstrap())
    asking = asyncio.ensure_future(fronts.decode.post(CHAT, json=body))
    assert (await fronts.prefill.post(CHAT, json=body)).json()["meta_info"]["handed_off"] is True
    assert not asking.done()
    asking.cancel()


async def test_several_prompts_have_a_room_each(fronts: Fronts) -> None:
    await fronts.start()
    bootstrap = fronts.bootstrap(bootstrap_room=[71, 72], bootstrap_port=[fronts.ports[0]] * 2)
    body = {"prompt": ["one", "two"], "n": 2} | bootstrap
    prefill, decode = await fronts.both("/v1/completions", body)
    assert [choice["text"] for choice in decode.json()["choices"]] == ["hello"] * 4
    assert prefill.status_code == 200
    assert len(fronts.deployment.decode.submits) == 4


async def test_a_missing_port_means_the_only_prefill_worker(fronts: Fronts) -> None:
    await fronts.start()
    _, decode = await fronts.chat(bootstrap_port=None)
    assert decode.status_code == 200


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("fields", "status"), [({"temperature": 9}, 400), ({"model": "other"}, 404), ({"max_tokens": 9999}, 400)]
)
async def test_what_decode_refuses_prefill_refuses_at_once(fronts: Fronts, fields: Any, status: int) -> None:
    """Whoever sent both waits for both."""
    await fronts.start()
    for response in await fronts.chat(**fields):
        error_of(response, status)
    assert fronts.deployment.prefill.submits == []


async def test_when_decode_fails_after_prefill_has_finished(fronts: Fronts) -> None:
    """Prefill is not to blame, so its leg says nothing of a failure: the other router's breakers count those."""
    await fronts.start()
    fronts.deployment.decode.plan = fail(fault=Fault.DECODE)
    prefill, decode = await fronts.chat()
    assert error_of(decode, 500)["code"] == "boom"
    assert prefill.json()["meta_info"]["handed_off"] is False
    assert len(fronts.deployment.decode.submits) == 1


async def test_when_prefill_fails_both_legs_do(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.prefill.plan = fail(fault=Fault.PREFILL)
    fronts.deployment.decode.plan = nothing
    for response in await fronts.chat():
        assert error_of(response, 500)["code"] == "boom"
    assert (await fronts.deployment.decode.cancelled()).failure.code == "boom"


async def test_when_decode_is_full_prefill_is_told(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.prefill.plan = nothing
    fronts.deployment.decode.plan = fail("queue_full", Fault.DECODE, 429, rejected=True)
    prefill, decode = await fronts.chat()
    error_of(decode, 429)
    assert prefill.status_code == 200
    assert (await fronts.deployment.prefill.cancelled()).failure.code == "queue_full"


async def test_a_client_that_leaves_ends_both_halves(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.prefill.plan = fronts.deployment.decode.plan = nothing
    body = chat_body(**fronts.bootstrap())
    asking = asyncio.ensure_future(fronts.decode.post(CHAT, json=body))
    await fronts.deployment.decode.submitted()
    asking.cancel()
    for worker in (fronts.deployment.prefill, fronts.deployment.decode):
        assert (await worker.cancelled()).failure.code == "client_closed_request"
    assert (await fronts.prefill.post(CHAT, json=body)).json()["meta_info"]["handed_off"] is False


async def test_a_room_is_one_requests_at_a_time(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.decode.plan = nothing
    body = chat_body(**fronts.bootstrap())
    asking = asyncio.ensure_future(fronts.decode.post(CHAT, json=body))
    submit = await fronts.deployment.decode.submitted()
    assert error_of(await fronts.decode.post(CHAT, json=body), 409)["code"] == "room_in_use"
    say("done")(fronts.deployment.decode, submit)
    assert (await asking).status_code == 200
    fronts.deployment.decode.plan = say("again")
    assert (await fronts.decode.post(CHAT, json=body)).status_code == 200


async def test_a_room_never_brings_another_requests_answer(fronts: Fronts) -> None:
    """Prefill's leg says nothing of what was asked; decode's answers its own body, whatever the other leg held."""
    await fronts.start()
    bootstrap = fronts.bootstrap()
    other = chat_body(**bootstrap) | {"messages": [{"role": "user", "content": "something else"}]}
    _, decode = await asyncio.gather(
        fronts.prefill.post(CHAT, json=other), fronts.decode.post(CHAT, json=chat_body(**bootstrap))
    )
    assert decode.status_code == 200
    prefill_submit, decode_submit = fronts.deployment.prefill.submits[0], fronts.deployment.decode.submits[0]
    assert prefill_submit.token_ids == decode_submit.token_ids


@pytest.mark.parametrize("name", ["prefill", "decode"])
async def test_half_of_a_pair_answers_nobody_alone(fronts: Fronts, name: str) -> None:
    await fronts.start()
    response = await getattr(fronts, name).post(CHAT, json=chat_body())
    assert error_of(response, 400)["code"] == "bootstrap_missing"


@pytest.mark.parametrize(
    "fields",
    [
        {"bootstrap_room": -1}, {"bootstrap_room": 1 << 63}, {"bootstrap_room": "1"}, {"bootstrap_room": []},
        {"bootstrap_room": [1] * 2000}, {"bootstrap_port": 70_000}, {"bootstrap_port": "9000"},
        {"bootstrap_port": [1, 2]}, {"bootstrap_port": 1},
    ],
)  # fmt: skip
async def test_bootstrap_fields_have_bounds(fronts: Fronts, fields: dict[str, Any]) -> None:
    await fronts.start()
    (name,) = fields
    assert error_of(await fronts.decode.post(CHAT, json=chat_body(**fronts.bootstrap() | fields)), 400)["param"] == name


async def test_the_pair_is_the_one_that_was_chosen(fronts: Fronts) -> None:
    """Decode's leg names prefill by its front's port; another prefill worker's leg does not take its word."""
    second = fronts.deployment.worker("prefill-1", "prefill")
    fronts.deployment.decode.peers = ("prefill-0", "prefill-1")
    fronts.deployment.workers = [fronts.deployment.prefill, fronts.deployment.decode, second]
    await fronts.start()
    bootstrap = fronts.bootstrap(bootstrap_port=fronts.ports[2])
    _, decode = await fronts.both(CHAT, body := chat_body(**bootstrap))
    assert decode.status_code == 200
    assert (submits(second), submits(fronts.deployment.prefill)) == (1, 0)
    assert error_of(await fronts.prefill.post(CHAT, json=body), 400)["code"] == "other_prefill"
    _, decode = await fronts.chat(bootstrap_port=None)
    assert error_of(decode, 400)["code"] == "unknown_prefill"


def submits(worker: FakeWorker) -> int:
    return len(worker.submits)


async def test_a_lost_worker_is_no_reason_to_wait(fronts: Fronts) -> None:
    await fronts.start()
    await fronts.deployment.decode.stop()
    await fronts.deployment.until(lambda service: len(service.fleet.present) == 1)
    prefill, decode = await fronts.chat()
    error_of(decode, 503)
    assert prefill.json()["meta_info"]["handed_off"] is False


async def test_stopping_ends_both_legs(fronts: Fronts) -> None:
    await fronts.start(grace_s=0.0)
    fronts.deployment.decode.plan = nothing
    asking = asyncio.ensure_future(fronts.chat())
    submit = await fronts.deployment.decode.submitted()
    alone = asyncio.ensure_future(fronts.prefill.post(CHAT, json=chat_body(**fronts.bootstrap())))
    fronts.deployment.decode.send(HandedOff(submit.request))
    await until_counted(fronts, 2)
    assert fronts.deployment.server is not None
    fronts.deployment.server.stop()
    _, decode = await asking
    assert error_of(decode, 503)["code"] == "server_stopping"
    assert isinstance(await alone, httpx.Response)


async def test_an_answer_is_aborted_by_its_id(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.prefill.plan, fronts.deployment.decode.plan = nothing, say("first", finish="")
    body = chat_body(stream=True, rid="mine", **fronts.bootstrap())
    async with fronts.decode.stream("POST", CHAT, json=body) as response:
        lines = response.aiter_lines()
        name = (await anext(lines)).split('"id":"')[1].split('"')[0]
        error_of(await fronts.decode.post("/abort_request", json={"rid": "mine"}), 404)
        assert (await fronts.prefill.post("/abort_request", json={"rid": name})).status_code == 200
        assert "request_aborted" in "".join([line async for line in lines])
    assert (await fronts.deployment.prefill.cancelled()).failure.code == "request_aborted"
