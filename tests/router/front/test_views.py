"""What fronts tell of their workers, to whom, and `/generate`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import msgspec
import pytest

from quiesce.cli.port import free_ports
from quiesce.errors import ConfigurationError
from quiesce.protocol.dispatch import Flush, Load, Submit, Tokens, WorkerSnapshot
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.router.front import views
from quiesce.router.front.ports import open_fronts
from quiesce.router.pairs import misspoken
from quiesce.router.settings import RouterSettings

from ..asking import OF_PAGES, OF_PEOPLE, chat_body, error_of
from ..fake_worker import FakeWorker, fail, nothing, say, words
from .conftest import CHAT, Fronts

LOOKS = ("/server_info", "/get_server_info", "/model_info", "/get_model_info", "/v1/loads", "/get_load", "/v1/models")


def snapshot(worker: FakeWorker) -> WorkerSnapshot:
    return WorkerSnapshot(worker.name, worker.role, worker.incarnation, {"free": 4}, 16, (), (), 0, 0)


# ---------------------------------------------------------------- who may ask


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}])
async def test_everything_but_health_needs_the_fronts_key(fronts: Fronts, headers: dict[str, str]) -> None:
    await fronts.start()
    for port in fronts.ports:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as stranger:
            for path in (*LOOKS, "/health_generate", "/flush_cache"):
                error_of(await stranger.get(path, headers=headers), 401)
            for path in ("/generate", CHAT, "/v1/completions", "/abort_request", "/flush_cache"):
                body = chat_body(**fronts.bootstrap())
                error_of(await stranger.post(path, json=body, headers=headers), 401)
            assert (await stranger.get("/health")).status_code == 200
    assert fronts.deployment.decode.submits == []


async def test_keys_of_clients_and_of_fronts_are_two_things(fronts: Fronts) -> None:
    await fronts.start(api_key=("a client's",))
    client = {"authorization": "Bearer a client's"}
    error_of(await fronts.decode.post(CHAT, json=chat_body(**fronts.bootstrap()), headers=client), 401)
    error_of(await fronts.public.post(CHAT, json=chat_body(), headers=fronts.decode.headers), 401)


async def test_the_public_port_has_no_front(fronts: Fronts) -> None:
    """Nor does a Host header lead there; what steers a pair is struck out of bodies."""
    await fronts.start()
    for path in ("/generate", "/server_info", "/v1/loads"):
        host = f"127.0.0.1:{fronts.ports[1]}"
        assert (await fronts.public.get(path, headers={"host": host})).status_code == 404
    bootstrap = fronts.bootstrap(bootstrap_port=1)
    assert (await fronts.public.post(CHAT, json=chat_body(**bootstrap))).status_code == 200
    assert fronts.deployment.decode.submits[0].room != bootstrap["bootstrap_room"]


async def test_an_open_front_asks_for_no_key(fronts: Fronts) -> None:
    await fronts.start(front_key=None, front_open=True)
    async with httpx.AsyncClient(base_url=fronts.decode.base_url, trust_env=False) as stranger:
        assert (await stranger.get("/server_info")).status_code == 200


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "--fronts needs --front-key"),
        ({"front_open": True, "front_host": "10.0.0.1"}, "loopback"),
        ({"front_open": True, "front_host": "example.org"}, "loopback"),
        ({"front_open": True, "front_key": "k" * 16}, "contradict"),
    ],
)
def test_a_front_without_a_key_is_for_this_machine(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RouterSettings(fronts=9000, **settings)
    RouterSettings(fronts=9000, front_open=True, front_host="::1")


async def test_the_routers_port_is_no_fronts(fronts: Fronts) -> None:
    """Not even at another address: the port alone tells which application answers."""
    await fronts.start()
    assert fronts.deployment.server is not None
    service = fronts.deployment.server.service
    told = msgspec.structs.replace(service.settings, fronts=free_ports("127.0.0.2", 0, 2), front_host="127.0.0.2")
    service.settings = told
    with pytest.raises(ConfigurationError, match=f"port {told.fronts} is --port's"):
        open_fronts(service, taken=told.fronts or 0)


async def test_ports_end_somewhere(fronts: Fronts) -> None:
    with pytest.raises(ConfigurationError, match="no port 65536"):
        await fronts.start(fronts=65535)


# ---------------------------------------------------------------- what is told


async def test_health_is_the_workers(fronts: Fronts) -> None:
    await fronts.start()
    assert (await fronts.decode.get("/health")).json() == {"status": "ok"}
    fronts.deployment.decode.send(Load(0, 0, 0, ready=False, reason="draining"))
    await fronts.deployment.until(lambda service: not service.fleet.links[1].load.ready)
    assert (await fronts.decode.get("/health")).json() == {"status": "not ready", "reason": "draining"}
    assert (await fronts.prefill.get("/health")).status_code == 200
    await fronts.deployment.prefill.stop()
    await fronts.deployment.until(lambda service: len(service.fleet.present) == 1)
    response = await fronts.prefill.get("/health")
    assert (response.status_code, response.json()["reason"]) == (503, "not connected")
    error_of(await fronts.prefill.get("/server_info"), 503)


async def test_health_is_no_more_from_the_moment_when_the_server_stops(fronts: Fronts) -> None:
    await fronts.start(drain_delay_s=3600.0)
    assert fronts.deployment.server is not None
    fronts.deployment.server.stop()
    for client in (fronts.prefill, fronts.decode):
        response = await client.get("/health")
        assert (response.status_code, response.json()["reason"]) == (503, "the server is stopping")
    assert (await fronts.decode.get("/server_info")).json()["status"] == "the server is stopping"


async def test_health_generate_of_half_a_pair_asks_its_loop(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.decode.snapshot = snapshot(fronts.deployment.decode)
    assert (await fronts.decode.get("/health_generate")).status_code == 200
    response = await fronts.prefill.get("/health_generate")  # it does not answer
    assert (response.status_code, response.json()["reason"]) == (503, "it does not answer")


async def test_health_generate_of_an_aggregated_worker_generates(fronts: Fronts) -> None:
    worker = fronts.deployment.worker("aggregated-0", "aggregated")
    fronts.deployment.workers = [worker]
    await fronts.start()
    worker.probe_plan = say("x", finish="length")
    assert (await fronts.decode.get("/health_generate")).status_code == 200
    worker.probe_plan = fail()
    assert "It went boom" in (await fronts.decode.get("/health_generate")).json()["reason"]
    answer = await fronts.decode.post(CHAT, json=chat_body())
    assert answer.json()["choices"][0]["message"]["content"] == "hello"
    assert (await fronts.decode.get("/server_info")).json()["disaggregation_mode"] == "null"


async def test_what_a_worker_is(fronts: Fronts) -> None:
    await fronts.start(served_model_name="mine")
    for client, mode, port in ((fronts.prefill, "prefill", fronts.ports[0]), (fronts.decode, "decode", 0)):
        told = (await client.get("/server_info")).json()
        assert told == (await client.get("/get_server_info")).json()
        assert (told["disaggregation_mode"], told["disaggregation_bootstrap_port"]) == (mode, port)
        assert (told["served_model_name"], told["worker"]) == ("mine", f"{mode}-0")
        assert (told["max_total_num_tokens"], told["context_length"], told["page_size"]) == (4096, 4096, 16)
    told = (await fronts.decode.get("/model_info")).json()
    assert told == (await fronts.decode.get("/get_model_info")).json()
    assert (told["model_path"], told["is_generation"]) == ("tiny", True)
    assert (await fronts.decode.get("/v1/models")).json()["data"][0]["id"] == "mine"


async def test_loads(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.decode.send(Load(3, 2, 1024))
    await fronts.deployment.until(lambda service: service.fleet.links[1].load.running == 3)
    (load,) = (await fronts.decode.get("/v1/loads")).json()["loads"]
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["num_used_tokens"]) == (3, 2, 3072)
    assert load["token_usage"] == 0.75
    assert (await fronts.decode.get("/get_load")).json() == [load]


async def test_flush_cache_names_another_version_and_asks_nothing(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.prefill.version = 1
    fronts.deployment.prefill.drop()
    await fronts.deployment.until(lambda service: any(misspoken(link) for link in service.fleet.links))
    error = error_of(await fronts.prefill.post("/flush_cache"), 503)
    assert error["code"] == "version_mismatch"
    assert error["message"].startswith("prefill-0 speaks version 1 of the router's frames, not ")
    assert not [frame for frame in fronts.deployment.prefill.seen if isinstance(frame, Flush)]


async def test_flush_cache_waits_for_the_worker(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    await fronts.start()
    assert (await fronts.decode.post("/flush_cache")).json()["success"] is True
    assert [frame for frame in fronts.deployment.decode.seen if isinstance(frame, Flush)]
    monkeypatch.setattr(views, "FLUSH_S", 0.01)
    fronts.deployment.prefill.flushes = False
    response = await fronts.prefill.get("/flush_cache")
    assert (response.status_code, response.json()["success"]) == (503, False)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_page_empties_the_cache_of_an_open_front(fronts: Fronts, method: str) -> None:
    """An image's address is a GET; a browser says where it stands."""
    await fronts.start(front_key=None, front_open=True)
    for headers in OF_PAGES:
        refused = await fronts.decode.request(method, "/flush_cache", headers=headers)
        assert error_of(refused, 403)["code"] == "cross_origin"
    assert not [frame for frame in fronts.deployment.decode.seen if isinstance(frame, Flush)]
    for headers in OF_PEOPLE:
        told = headers | ({"sec-fetch-site": "none"} if method == "GET" else {})
        assert (await fronts.decode.request(method, "/flush_cache", headers=told)).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_open_front_wants_a_sign_that_no_page_can_give(fronts: Fronts, method: str) -> None:
    """Old browsers say nothing of pages: there an image's GET looks like anybody's."""
    await fronts.start(front_key=None, front_open=True)
    async with httpx.AsyncClient(base_url=fronts.decode.base_url, trust_env=False) as old:
        assert (await old.request(method, "/flush_cache")).status_code == 403
        assert not [frame for frame in fronts.deployment.decode.seen if isinstance(frame, Flush)]
        signed = await old.request(method, "/flush_cache", headers={"authorization": "Bearer whatever"})
        assert signed.status_code == 200


# ---------------------------------------------------------------- /generate


def spoken(logprobs: tuple[TokenLogprobs, ...] = ()) -> Any:
    def on_submit(worker: FakeWorker, submit: Submit) -> None:
        wanted = logprobs if submit.sampling.logprobs is not None else ()
        worker.send(Tokens(submit.request, words("he"), "", 0, wanted))
        worker.send(Tokens(submit.request, words("y"), "length", 0, wanted[:1]))

    return on_submit


async def generate(fronts: Fronts, **fields: Any) -> httpx.Response:
    body = {"sampling_params": {"temperature": 0, "max_new_tokens": 3}} | fronts.bootstrap() | fields
    _, decode = await fronts.both("/generate", body)
    return decode


async def test_generate(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.decode.plan = spoken()
    told = (await generate(fronts, text="hi")).json()
    meta = told.pop("meta_info")
    assert told == {"text": "hey"}
    assert meta.pop("id").startswith("gen-")
    assert meta == {
        "finish_reason": {"type": "length", "length": 3},
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "cached_tokens": 0,
    }
    assert (await generate(fronts, input_ids=[104, 105])).json()["text"] == "hey"
    first, second = fronts.deployment.decode.submits
    assert (first.token_ids, first.max_tokens) == (second.token_ids, 3)


async def test_generate_streams_what_was_said_so_far(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.decode.plan = spoken()
    response = await generate(fronts, text="hi", stream=True)
    *data, done = [line.removeprefix("data: ") for line in response.text.split("\n") if line]
    documents = [json.loads(line) for line in data]
    assert done == "[DONE]"
    assert [document["text"] for document in documents] == ["he", "hey", "hey"]
    assert [document["meta_info"]["completion_tokens"] for document in documents] == [2, 3, 3]
    ends = [document["meta_info"]["finish_reason"] for document in documents]
    assert ends == [None, None, {"type": "length", "length": 3}]


async def test_generate_tells_log_probabilities(fronts: Fronts) -> None:
    await fronts.start()
    one = TokenLogprobs(-0.5, (104,), (-0.25,))
    fronts.deployment.decode.plan = spoken((one, one))
    meta = (await generate(fronts, text="hi", return_logprob=True, top_logprobs_num=1)).json()["meta_info"]
    assert meta["output_token_logprobs"] == [[-0.5, 104, "h"], [-0.5, 101, "e"], [-0.5, 121, "y"]]
    assert meta["output_top_logprobs"] == [[[-0.25, 104, "h"]]] * 3
    assert meta["input_token_logprobs"] == []


async def test_generate_has_its_own_names(fronts: Fronts) -> None:
    await fronts.start()
    params = {"max_new_tokens": 9, "min_new_tokens": 2, "sampling_seed": 7, "top_k": -1, "stop": ["x"], "n": 1}
    sent_along = {"log_metrics": True, "background": False, "no_logs": False, "model": None, "rid": "theirs"}
    assert (await generate(fronts, text="hi", sampling_params=params, **sent_along)).status_code == 200
    submit = fronts.deployment.decode.submits[0]
    assert (submit.max_tokens, submit.sampling.min_tokens, submit.sampling.seed) == (9, 2, 7)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "text"), ({"text": "a", "input_ids": [1]}, "text"), ({"text": ["a", "b"]}, "text"), ({"text": 7}, "text"),
        ({"input_ids": [999]}, "prompt"), ({"text": "a", "sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"),
        ({"text": "a", "sampling_params": {"n": 2}}, "text"), ({"text": "a", "sampling_params": 3}, "sampling_params"),
        ({"text": "a", "no_logs": True}, "no_logs"), ({"text": "a", "image_data": "x"}, "image_data"),
    ],
)  # fmt: skip
async def test_generate_refuses_by_name(fronts: Fronts, fields: dict[str, Any], param: str) -> None:
    await fronts.start()
    assert error_of(await generate(fronts, **fields), 400)["param"] == param
    assert fronts.deployment.decode.submits == []


async def test_a_front_that_waits_holds_up_nobody(fronts: Fronts) -> None:
    await fronts.start()
    fronts.deployment.decode.plans = [nothing]
    asking = asyncio.ensure_future(fronts.chat())
    await fronts.deployment.decode.submitted()
    _, decode = await fronts.chat()
    assert decode.status_code == 200
    asking.cancel()
