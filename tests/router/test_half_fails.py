"""One half fails, in every way and at every time: the client has an error or another pair, the other half is told.

The second part is the same with real pages: whatever fails, they come back on proof.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from quiesce.protocol.dispatch import Failed, HandedOff, Submit, Tokens
from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.pairing import Half, Try, is_committed

from .asking import CHAT, chat, chat_body, error_of
from .conftest import Deployment
from .fake_worker import FakeWorker, nothing, words
from .test_silence import freeze
from .whole import Whole, whole

Break = Callable[[Deployment, FakeWorker, Submit], None]


def answer(status: int, *, rejected: bool) -> Break:
    def breaks(deployment: Deployment, worker: FakeWorker, submit: Submit) -> None:
        fault = Fault.CLIENT if status < 500 else Fault.PREFILL if worker.role == "prefill" else Fault.DECODE
        worker.send(Failed(submit.request, Failure("boom", "It went boom.", fault, status), rejected))

    return breaks


def reset(deployment: Deployment, worker: FakeWorker, submit: Submit) -> None:
    """The stream is lost; the next one is another life's."""
    worker.drop()


def hang(deployment: Deployment, worker: FakeWorker, submit: Submit) -> None:
    """As SIGSTOP does, and then six seconds pass."""
    freeze(deployment, worker)


WAYS: dict[str, tuple[Break, int, str]] = {
    "rejects with 400": (answer(400, rejected=True), 400, "boom"),
    "rejects with 503": (answer(503, rejected=True), 503, "boom"),
    "fails with 500": (answer(500, rejected=False), 500, "boom"),
    "resets": (reset, 502, "worker_lost"),
    "hangs": (hang, 504, "worker_silent"),
}
WHO_AND_WHEN = pytest.mark.parametrize(
    ("role", "when"), [("prefill", "during prefill"), ("decode", "during prefill"), ("decode", "after prefill")]
)


class Two:
    """Two pairs with nobody in common, the first of which fails."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.first = {"prefill": deployment.prefill, "decode": deployment.decode}
        self.second = {
            "prefill": deployment.worker("prefill-1", "prefill"),
            "decode": deployment.worker("decode-1", "decode", ("prefill-1",)),
        }
        deployment.workers += self.second.values()

    async def start(self, **settings: Any) -> httpx.AsyncClient:
        client = await self.deployment.start(**settings)
        await self.deployment.until(lambda service: len(service.fleet.pairs()) == 2)
        self.deployment.prefill.plan = self.deployment.decode.plan = nothing
        return client

    async def asked(self, client: httpx.AsyncClient, **fields: Any) -> tuple[asyncio.Future[httpx.Response], Submit]:
        """A request on the first pair, of which each half has its part."""
        while True:
            asking = asyncio.ensure_future(chat(client, **fields))
            came = asyncio.ensure_future(self.deployment.decode.submitted())
            await asyncio.wait({asking, came}, return_when=asyncio.FIRST_COMPLETED)
            if came.done():
                await self.deployment.prefill.submitted()
                return asking, came.result()
            came.cancel()
            for worker in self.second.values():
                worker.seen.clear()

    async def go(self, role: str, when: str, breaks: Break, submit: Submit) -> None:
        if when == "after prefill":
            self.deployment.prefill.send(HandedOff(submit.request))
            await self.knows(submit, lambda state: state.prefill is Half.DONE)
        breaks(self.deployment, self.first[role], submit)

    async def knows(self, submit: Submit, true: Callable[[Try], bool]) -> None:
        """Wait until the router has heard of it."""
        assert self.deployment.server is not None
        halves = self.deployment.server.service.fleet._tries[submit.request]
        async with asyncio.timeout(60):
            while not true(halves._state):  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.002)

    async def is_told(self, role: str, when: str, submit: Submit) -> None:
        """The half that did not fail, unless it was done."""
        if not (role == "decode" and when == "after prefill"):
            other = self.first["decode" if role == "prefill" else "prefill"]
            assert (await other.cancelled()).request == submit.request


@WHO_AND_WHEN
@pytest.mark.parametrize("way", WAYS)
async def test_without_retries_the_client_has_the_error(deployment: Deployment, role: str, way: str, when: str) -> None:
    two = Two(deployment)
    client = await two.start(retries=0)
    asking, submit = await two.asked(client)
    breaks, status, code = WAYS[way]
    await two.go(role, when, breaks, submit)
    assert error_of(await asking, status)["code"] == code
    await two.is_told(role, when, submit)
    assert submit.request not in deployment.server.service.fleet._tries  # type: ignore[union-attr]


@WHO_AND_WHEN
@pytest.mark.parametrize("way", [way for way, (_, status, _) in WAYS.items() if status >= 500])
async def test_a_retry_takes_the_other_pair_and_a_fresh_room(
    deployment: Deployment, role: str, way: str, when: str
) -> None:
    """Also when decode fails after prefill has finished."""
    two = Two(deployment)
    client = await two.start(retries=1)
    asking, submit = await two.asked(client)
    await two.go(role, when, WAYS[way][0], submit)
    assert (await asking).json()["choices"][0]["message"]["content"] == "hello"
    await two.is_told(role, when, submit)
    (again,) = two.second["decode"].submits
    assert [worker.submits[0].request for worker in two.second.values()] == [again.request] * 2
    assert again.room != submit.room
    assert again.request != submit.request
    assert again.prefill == "prefill-1"


async def test_a_door_that_drains_costs_no_try(deployment: Deployment) -> None:
    """The router learns of a drain a moment later than the worker: nobody's request pays for that."""
    two = Two(deployment)
    client = await two.start(retries=0)
    refused = Failure("worker_draining", "This worker is shutting down.", Fault.QUIESCE, 503)
    deployment.decode.plan = lambda worker, submit: worker.send(Failed(submit.request, refused, rejected=True))
    assert [(await chat(client)).status_code for _ in range(4)] == [200] * 4
    assert deployment.decode.submits
    for worker in two.second.values():
        await worker.stop()
    await deployment.until(lambda service: len(service.fleet.pairs()) == 1)
    assert error_of(await chat(client), 503)["code"] == "worker_draining"


@pytest.mark.parametrize("way", WAYS)
async def test_prefills_end_matters_no_more_after_the_hand_off(deployment: Deployment, way: str) -> None:
    two = Two(deployment)
    client = await two.start(retries=0)
    asking, submit = await two.asked(client)
    await two.go("prefill", "after prefill", WAYS[way][0], submit)
    deployment.decode.send(Tokens(submit.request, words("fine"), "stop"))
    assert (await asking).json()["choices"][0]["message"]["content"] == "fine"


@pytest.mark.parametrize("way", ["fails with 500", "resets"])
async def test_after_the_first_byte_nothing_is_tried_again(deployment: Deployment, way: str) -> None:
    two = Two(deployment)
    client = await two.start(retries=3)
    deployment.decode.plan = lambda worker, submit: worker.send(Tokens(submit.request, words("first")))
    while True:
        async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
            lines = response.aiter_lines()
            while "first" not in (line := await anext(lines)) and "llo" not in line:
                pass
            if "first" in line:
                WAYS[way][0](deployment, deployment.decode, deployment.decode.submits[0])
                rest = [line async for line in lines if line]
                break
    assert ['"error"' in line for line in rest] == [True]


@pytest.mark.parametrize("way", ["fails with 500", "resets"])
async def test_what_no_client_has_read_is_tried_again(deployment: Deployment, way: str) -> None:
    """An answer that is not streamed is kept until it is whole. What the first try said counts for nothing."""
    two = Two(deployment)
    client = await two.start(retries=1)
    asking, submit = await two.asked(client)
    deployment.decode.send(Tokens(submit.request, words("secon")))
    await two.knows(submit, is_committed)
    WAYS[way][0](deployment, deployment.decode, submit)
    answer = (await asking).json()
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert answer["usage"]["completion_tokens"] == len(words("hello"))
    (again,) = two.second["decode"].submits
    assert again.room != submit.room


@pytest.mark.parametrize("retries", [0, 1])
async def test_what_is_the_clients_own_fault_is_not_tried_again(deployment: Deployment, retries: int) -> None:
    two = Two(deployment)
    client = await two.start(retries=retries)
    asking, submit = await two.asked(client)
    deployment.decode.send(Tokens(submit.request, words("he")))
    await two.knows(submit, is_committed)
    deployment.decode.send(Failed(submit.request, Failure("grammar_failed", "No.", Fault.CLIENT, 400)))
    assert error_of(await asking, 400)["code"] == "grammar_failed"
    assert not two.second["decode"].submits


async def test_what_has_begun_to_answer_waits_for_a_frozen_worker(deployment: Deployment) -> None:
    """It may wake; a client that has read something cannot begin anew."""
    two = Two(deployment)
    client = await two.start()
    asking, submit = await two.asked(client)
    deployment.decode.send(Tokens(submit.request, words("fir")))
    await two.knows(submit, is_committed)
    freeze(deployment, deployment.decode)
    freeze(deployment, deployment.prefill)
    deployment.decode.send(Tokens(submit.request, words("st"), "stop"))
    assert (await asking).json()["choices"][0]["message"]["content"] == "first"


# ------------------------------------------------------------ with real pages


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not tmp_path: a socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="q-", dir="/tmp") as made:
        yield Path(made)


async def lose_prefills_router(server: Whole) -> None:
    server.prefill.worker.links.close()


async def lose_decodes_router(server: Whole) -> None:
    server.decode.worker.links.close()


async def lose_the_stream_between(server: Whole) -> None:
    for stream in list(server.prefill.worker.streams._streams.values()):
        stream.close()


async def prefill_refuses_to_go_on(server: Whole) -> None:
    """An error in the computation; where there is none any more, nothing happens."""
    engine = server.prefill.worker.parts.engine
    engine.prefill_chunk = _once(engine.prefill_chunk)


def _once(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Fails the first call that has begun, or begins, and no other."""
    broken = [True]

    def call(*args: Any, **kwargs: Any) -> Any:
        if broken.pop() if broken else False:
            raise ValueError("no such kernel")
        return inner(*args, **kwargs)

    return call


LOSSES: dict[str, Callable[[Whole], Awaitable[None]]] = {
    "prefill loses the router": lose_prefills_router,
    "decode loses the router": lose_decodes_router,
    "the halves lose each other": lose_the_stream_between,
}


@contextlib.asynccontextmanager
async def relinked(server: Whole) -> AsyncIterator[None]:
    """The desk lost its links with the router's; it attaches again."""
    yield
    for name, member in server.house.members.items():
        if server.house.desk.streams[name].closed or name in ("prefill-0", "decode-0"):
            server.house.desk.streams[name].close()
            await server.house.desk.attach(name, member.path)


@pytest.mark.parametrize("stage", ["queued", "prefill", "transfer", "decode"])
@pytest.mark.parametrize("loss", LOSSES)
async def test_lost_streams_cost_a_retry_and_no_page(
    directory: Path, loss: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quiesce.router.generation._PATIENCE_S", 60.0)
    async with whole(directory, retries=2) as server:
        expected = await server.answered(prompt="a prompt of some length", max_tokens=64)
        caller = await server.stopped_at(stage)
        async with relinked(server):
            await LOSSES[loss](server)
        server.go_on()
        status, document = await caller.document()
        assert (status, document.get("choices")) == (200, expected["choices"])
        await server.is_whole()
        assert (await server.answered(prompt="a prompt of some length", max_tokens=64))["choices"] == expected[
            "choices"
        ]


async def test_an_error_in_the_computation_is_tried_again(directory: Path) -> None:
    async with whole(directory, retries=1) as server:
        expected = await server.answered()
        await prefill_refuses_to_go_on(server)
        assert (await server.answered())["choices"] == expected["choices"]
        await server.is_whole()
