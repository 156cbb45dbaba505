from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.routing import Route

from quiesce.errors import ConfigurationError
from quiesce.protocol.dispatch import Load, Peers, Submit
from quiesce.protocol.messages import Fault
from quiesce.router.app import build_app
from quiesce.router.listening import bind

from .asking import CHAT, chat, chat_body, error_of
from .conftest import Deployment
from .fake_worker import FakeWorker, OnSubmit, fail, nothing, say


async def test_models(deployment: Deployment) -> None:
    client = await deployment.start()
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [(model["id"], model["object"], model["max_model_len"]) for model in listed["data"]] == [
        ("tiny", "model", 4096)
    ]


async def test_the_specification_has_every_path(deployment: Deployment) -> None:
    client = await deployment.start()
    document = (await client.get("/openapi.json")).json()
    assert deployment.server is not None
    routes = build_app(deployment.server.service).routes
    paths = {route.path.replace(":path", "") for route in routes if isinstance(route, Route)}
    assert document["paths"].keys() == {path for path in paths if not path.startswith("/console")}  # for people


async def test_health_says_that_the_router_is_up(deployment: Deployment) -> None:
    deployment.workers = []
    client = await deployment.start(ready=False)
    assert (await client.get("/health")).status_code == 200


async def test_readiness_needs_a_generation_through_the_pair(deployment: Deployment) -> None:
    """Connected workers are not enough; the probe's failure is told, and its success makes ready."""
    deployment.decode.probe_plan = fail(fault=Fault.DECODE)
    client = await deployment.start(ready=False)
    await deployment.until(lambda service: "test generation" in service.readiness.why_not())
    response = await client.get("/readiness")
    assert response.status_code == 503
    assert "prefill-0 and decode-0 failed" in response.json()["reason"]
    deployment.decode.probe_plan = say("ok", finish="length")
    deployment.decode.send(Load(1, 0, 4096))
    await deployment.until_ready()
    assert (await client.get("/readiness")).json() == {"status": "ready"}


async def test_what_clients_generate_proves_a_pair_too(deployment: Deployment) -> None:
    deployment.decode.probe_plan = nothing
    client = await deployment.start(ready=False)
    await deployment.until(lambda service: "first generation" in service.readiness.why_not())
    assert (await client.get("/readiness")).status_code == 503
    await chat(client)
    assert (await client.get("/readiness")).status_code == 200


async def test_readiness_says_why_two_workers_are_not_paired(deployment: Deployment) -> None:
    deployment.decode.peers = ()
    client = await deployment.start(ready=False)
    why = "protocol version differs: decode-0 has 4, prefill-0 has 5"
    await deployment.until(lambda service: len([link for link in service.fleet.present if link.load.ready]) == 2)
    deployment.decode.send(Peers((), (("prefill-0", why),)))
    await deployment.until(lambda service: why in service.readiness.why_not())
    assert (await client.get("/readiness")).json()["reason"] == f"decode-0 with prefill-0: {why}"
    deployment.decode.send(Peers(("prefill-0",)))
    await deployment.until_ready()


async def test_a_lost_worker_ends_readiness(deployment: Deployment) -> None:
    client = await deployment.start()
    await deployment.prefill.stop()
    await deployment.until(lambda service: bool(service.readiness.why_not()))
    response = await client.get("/readiness")
    assert response.status_code == 503
    assert "not connected" in response.json()["reason"]


async def test_a_worker_that_is_busy_for_a_moment_needs_no_new_proof(deployment: Deployment) -> None:
    await deployment.start()
    deployment.decode.probe_plan = nothing
    deployment.decode.send(Load(0, 0, 0, ready=False, reason="quarantine"))
    await deployment.until(lambda service: "quarantine" in service.readiness.why_not())
    deployment.decode.send(Load(0, 0, 4096))
    await deployment.until_ready()


async def test_metrics_of_the_router_and_all_workers(deployment: Deployment) -> None:
    client = await deployment.start()
    await chat(client)
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert 'fake_pages{worker="prefill-0"} 7.0' in response.text
    assert 'fake_pages{worker="decode-0"} 7.0' in response.text
    assert 'quiesce_requests_total{outcome="finished",role="router",worker="router"} 1.0' in response.text
    assert 'quiesce_ttft_seconds_count{role="router",worker="router"} 1.0' in response.text
    assert 'quiesce_itl_seconds_count{role="router",worker="router"} 3.0' in response.text


async def test_stopping_lets_requests_finish(deployment: Deployment) -> None:
    client = await deployment.start(grace_s=10.0)
    deployment.decode.plans = [say("he", finish="")]
    asked = asyncio.ensure_future(chat(client))
    submit = await deployment.decode.submitted()
    assert deployment.server is not None
    deployment.server.stop()
    say("llo")(deployment.decode, submit)
    assert (await asked).json()["choices"][0]["message"]["content"] == "hello"


async def test_an_address_that_is_taken_is_a_configuration_error(deployment: Deployment) -> None:
    await deployment.start()
    assert deployment.server is not None
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        bind("127.0.0.1", deployment.server.port)


async def test_errors_before_any_worker_is_known(deployment: Deployment) -> None:
    deployment.workers = []
    client = await deployment.start(ready=False)
    assert error_of(await client.post(CHAT, json=chat_body(messages=[])), 400)["param"] == "messages"


def test_the_process_ends_with_0_at_sigterm(tmp_path: Path) -> None:
    """And it needs no torch."""
    program = (
        "import sys; from quiesce.router.main import run; from quiesce.router.settings import RouterSettings;"
        "code = run(RouterSettings(port=0, model='tiny', grace_s=1.0));"
        "sys.exit(code or ('torch' in sys.modules) or ('transformers' in sys.modules))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "listening" in process.stderr.readline()
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(20) == 0
    process.stderr.close()


def counting(probes: list[str], then: OnSubmit) -> OnSubmit:
    def on_submit(worker: FakeWorker, submit: Submit) -> None:
        probes.append(worker.name)
        then(worker, submit)

    return on_submit


async def test_several_pairs_that_fail_are_probed_once_a_second(deployment: Deployment) -> None:
    """Each new reason is a change that is told; reasons that take turns are not new."""
    second = deployment.second_prefill()
    probes = list[str]()
    deployment.prefill.probe_plan = second.probe_plan = counting(probes, fail(fault=Fault.PREFILL))
    deployment.decode.probe_plan = nothing
    client = await deployment.start(ready=False)
    await deployment.until(lambda service: len(service.readiness._failures) == 2)
    for _ in range(50):
        assert (await client.get("/readiness")).status_code == 503
    assert len(probes) < 20


async def test_a_pair_that_says_nothing_keeps_no_other_from_being_proved(deployment: Deployment) -> None:
    second = deployment.worker("decode-1", "decode", ("prefill-0",))
    deployment.workers.append(second)
    deployment.decode.probe_plan = nothing
    await deployment.start()
    deployment.decode.probe_plan, second.probe_plan = second.probe_plan, nothing
    second.drop()
    deployment.decode.drop()
    await deployment.until(lambda service: bool(service.readiness.why_not()))
    await deployment.until_ready()
