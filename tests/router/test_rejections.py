from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from quiesce.protocol.dispatch import Load

from .asking import CHAT, COMPLETION, chat, chat_body, complete, error_of
from .conftest import Deployment

JSON = {"content-type": "application/json"}


def nobody_was_told(deployment: Deployment) -> bool:
    return not any(worker.seen for worker in deployment.workers)


async def test_a_prompt_that_no_pool_can_hold_reaches_no_worker(deployment: Deployment) -> None:
    """The incident: 700,000 tokens, within the model's context but not within prefill's pool of 681,280."""
    for worker in deployment.workers:
        worker.context_length = worker.pool_tokens = 1_048_576
    deployment.prefill.pool_tokens = 681_280
    client = await deployment.start()
    error = error_of(await complete(client, prompt=[65] * 700_000, max_tokens=10), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert "681280" in error["message"]
    assert "700000" in error["message"]
    assert nobody_was_told(deployment)
    assert (await chat(client)).status_code == 200


async def test_a_prompt_that_cannot_land_whole_reaches_no_worker(deployment: Deployment) -> None:
    deployment.decode.landing_tokens = 1000
    client = await deployment.start()
    error = error_of(await complete(client, prompt=[65] * 1001, max_tokens=10), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert "prompts of at most 1000 tokens" in error["message"]
    assert nobody_was_told(deployment)


@pytest.mark.parametrize("fields", [{"max_tokens": 4096}, {"messages": [{"role": "user", "content": "x" * 5000}]}])
async def test_what_does_not_fit_reaches_no_worker(deployment: Deployment, fields: Any) -> None:
    client = await deployment.start()
    error = error_of(await chat(client, **fields), 400)
    assert error["code"] == "context_length_exceeded"
    assert "4096" in error["message"]
    assert nobody_was_told(deployment)
    metrics = (await client.get("/metrics")).text
    assert 'quiesce_rejections_total{code="context_length_exceeded",role="router",worker="router"} 1.0' in metrics


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"messages": 5}', "invalid_value"),
        (rb'{"messages":[{"role":"user","content":"\ud800"}]}', "invalid_json"),
        (b'{"messages":[{"role":"user","content":"\xff"}]}', "invalid_json"),
        (b'{"messages":[{"role":"user","content":"hi"}],"tools":[{}]}', "invalid_value"),
        (b"[" * 100_000, "invalid_value"),
    ],
)
async def test_bad_bodies(deployment: Deployment, body: bytes, code: str) -> None:
    client = await deployment.start()
    response = await client.post(CHAT, content=body, headers=JSON)
    assert error_of(response, 400)["code"] == code
    assert nobody_was_told(deployment)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt": [259]}, "invalid_token_id", "prompt"),
        ({"prompt": [4_000_000_000]}, "invalid_token_id", "prompt"),
        ({"prompt": ""}, "invalid_value", "prompt"),
        ({"stop_token_ids": [1 << 20]}, "invalid_token_id", "stop_token_ids"),
        ({"logit_bias": {"259": 1}}, "invalid_token_id", "logit_bias"),
        ({"best_of": 2}, "unsupported_parameter", "best_of"),
        ({"prompt": ["a", ""]}, "invalid_value", "prompt"),
        ({"prompt": ["a", [300]]}, "invalid_token_id", "prompt"),
        ({"prompt": ["a", "x" * 5000]}, "context_length_exceeded", "prompt"),
        ({"prompt": ["a", [1] * 4090], "max_tokens": 10}, "context_length_exceeded", "prompt"),
    ],
)
async def test_bad_values(deployment: Deployment, fields: Any, code: str, param: str) -> None:
    client = await deployment.start()
    error = error_of(await complete(client, **fields), 400)
    assert (error["code"], error["param"]) == (code, param)
    assert nobody_was_told(deployment)


async def test_an_unknown_model(deployment: Deployment) -> None:
    client = await deployment.start(served_model_name="mine")
    assert error_of(await chat(client, model="gpt-9"), 404)["code"] == "model_not_found"
    answer = (await chat(client, model="mine")).json()
    assert answer["model"] == "mine"
    assert (await client.get("/v1/models/mine")).status_code == 200
    assert (await client.get("/v1/models/gpt-9")).status_code == 404


@pytest.mark.parametrize("path", ["/models/My-Model-1B", "models/My-Model-1B/", "~/m.gguf"])
async def test_a_model_may_be_asked_for_by_the_path_it_is_served_from(deployment: Deployment, path: str) -> None:
    client = await deployment.start(model=path)
    answer = (await chat(client, model=path)).json()
    assert answer["model"] == "tiny"
    assert (await client.get(f"/v1/models/{path}")).json()["id"] == "tiny"
    assert error_of(await chat(client, model="/models/other"), 404)["code"] == "model_not_found"


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_that_is_too_large(deployment: Deployment, declared: bool) -> None:
    """Refused by its declared length, and while it is read when none is declared."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 1000

    client = await deployment.start(max_body_bytes=100_000)
    content = b"x" * 200_000 if declared else parts()
    response = await client.post(CHAT, content=content, headers=JSON)
    assert error_of(response, 413)["code"] == "body_too_large"


FORM = "application/x-www-form-urlencoded"
ORIGIN, SITE = {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"}, {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": FORM} | ORIGIN, {"content-type": FORM, "origin": "null"}, {"content-type": FORM} | SITE,
        ORIGIN, {"content-type": ""} | ORIGIN, SITE,
    ],
)  # fmt: skip
async def test_what_a_web_page_can_send_without_asking_is_not_taken(deployment: Deployment, headers: Any) -> None:
    """A page may send text, a form or a body of no type to a local server; it must not get tokens for it."""
    client = await deployment.start()
    error = error_of(await client.post(CHAT, content=json.dumps(chat_body()), headers=headers), 415)
    assert "Add the header Content-Type: application/json" in error["message"]
    assert nobody_was_told(deployment)


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-type": ""}, {"content-type": FORM}, {"content-type": "Application/JSON; charset=utf-8"} | ORIGIN],
)
async def test_json_is_taken_as_curl_sends_it(deployment: Deployment, headers: Any) -> None:
    client = await deployment.start()
    assert (await client.post(CHAT, content=json.dumps(chat_body()), headers=headers)).status_code == 200
    assert error_of(await client.post(CHAT, content="a=b", headers=headers), 400)["code"] == "invalid_json"


async def test_fields_that_steer_the_inside_are_counted_and_go_nowhere(deployment: Deployment) -> None:
    client = await deployment.start()
    response = await chat(client, bootstrap_host="evil", bootstrap_room=7, salt="mine", request_id="req-1")
    assert response.status_code == 200
    submit = deployment.decode.submits[0]
    assert submit.salt == ""
    assert submit.room != 7
    assert submit.request != "req-1"
    metrics = (await client.get("/metrics")).text
    assert 'quiesce_stripped_fields_total{field="bootstrap_*",role="router",worker="router"} 1.0' in metrics
    assert 'field="salt"' in metrics


async def test_a_client_can_only_make_its_cache_smaller(deployment: Deployment) -> None:
    """What it says goes into its tenant's salt, and is none of its own making."""
    client = await deployment.start()
    for fields in ({}, {"cache_salt": "a"}, {"cache_salt": "a"}, {"cache_salt": "b"}):
        assert (await chat(client, **fields)).status_code == 200
    whole, one, again, other = (submit.salt for submit in deployment.decode.submits)
    assert (whole, one) == ("", again)
    assert len({whole, one, other, "a", "b"}) == 5
    for wrong in ("", "x" * 257, 7):
        assert error_of(await chat(client, cache_salt=wrong), 400)["param"] == "cache_salt"


async def test_api_keys(deployment: Deployment) -> None:
    client = await deployment.start(api_key=("one", "two"))
    for headers in ({}, {"authorization": "Bearer three"}, {"authorization": "Basic one"}):
        response = await client.post(CHAT, json=chat_body(), headers=headers)
        assert error_of(response, 401)["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
        assert (await client.get("/v1/models", headers=headers)).status_code == 401
    response = await client.post(CHAT, json=chat_body(), headers={"authorization": "bearer two"})
    assert response.status_code == 200
    for path in ("/health", "/readiness", "/metrics"):
        assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("reason", ["no worker", "unready", "other model", "other version", "no peer"])
async def test_without_a_pair_there_is_a_503(deployment: Deployment, reason: str) -> None:
    if reason == "no worker":
        deployment.workers = []
    elif reason == "unready":
        deployment.decode.load = Load(0, 0, 0, ready=False, reason="draining")
    elif reason == "other model":
        deployment.prefill.model = "other"
    elif reason == "other version":
        deployment.prefill.version = 1
    else:
        deployment.decode.peers = ("prefill-9",)
    client = await deployment.start(ready=False)
    response = await chat(client)
    assert error_of(response, 503)["code"] == "no_workers"
    assert response.headers["retry-after"] == "1"
    assert nobody_was_told(deployment)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", CHAT, 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("DELETE", COMPLETION, 405, "method_not_allowed"),
    ],
)
async def test_paths_and_methods_that_are_not_served(
    deployment: Deployment, method: str, path: str, status: int, code: str
) -> None:
    client = await deployment.start()
    response: httpx.Response = await client.request(method, path)
    assert error_of(response, status)["code"] == code
