"""Several answers to one request: `n`, batches of prompts, one stream for all, one end for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quiesce.protocol.dispatch import Submit, Tokens
from quiesce.protocol.messages import Fault
from quiesce.router.choices import AT_ONCE

from .asking import CHAT, chat, chat_body, complete, error_of, events, until_said
from .conftest import Deployment
from .fake_worker import FakeWorker, fail, nothing, say, words


def prompt_of(submit: Submit) -> str:
    return bytes(submit.token_ids[::4]).decode()


def parrot(worker: FakeWorker, submit: Submit) -> None:
    """Says the prompt and the last digit of its seed, each in a frame."""
    worker.send(Tokens(submit.request, words(prompt_of(submit)), "", 1))
    worker.send(Tokens(submit.request, words(str((submit.sampling.seed or 0) % 10)), "length"))


def texts(documents: list[Any]) -> dict[int, str]:
    """The text of each choice of a stream of completions."""
    found: dict[int, str] = {}
    for choice in [choice for document in documents for choice in document["choices"]]:
        found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    return found


async def test_n_answers_have_seeds_that_follow_from_the_requests(deployment: Deployment) -> None:
    """The first has the request's own, so that n changes nothing about it; the others are the same each time."""
    client = await deployment.start()
    first = (await chat(client, n=3, seed=5)).json()
    await chat(client, n=3, seed=5)
    await chat(client, seed=5)
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    seeds = [submit.sampling.seed for submit in deployment.decode.submits]
    assert len({*seeds[:3]}) == 3
    assert sorted(seeds[3:6], key=str) == sorted(seeds[:3], key=str)
    assert 5 in seeds[:3]
    assert seeds[6] == 5
    assert all(seed is not None and 0 <= seed < 1 << 63 for seed in seeds)
    assert len({submit.room for submit in deployment.decode.submits}) == 7


async def test_a_batch_is_answered_in_order(deployment: Deployment) -> None:
    """Choices of one prompt stand together; each prompt's tokens count once, however often it is answered."""
    client = await deployment.start()
    deployment.decode.plan = parrot
    answer = (await complete(client, prompt=["a", [98, 98], "ccc"], n=2, seed=7)).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    said = [choice["text"] for choice in answer["choices"]]
    assert [text[:-1] for text in said] == ["a", "a", "bb", "bb", "ccc", "ccc"]
    assert said[0][-1] == said[2][-1] == said[4][-1] == "7"
    assert answer["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 2 * 6 + 6,
        "total_tokens": 6 + 18,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


async def test_a_batch_of_one_is_as_one_alone(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plan = parrot
    bodies: list[Any] = ["hi", ["hi"], [[104, 105]]]
    answers = [(await complete(client, prompt=prompt, seed=1)).json()["choices"] for prompt in bodies]
    assert answers[0] == answers[1] == answers[2]


async def test_answers_are_streamed_mixed(deployment: Deployment) -> None:
    """What the second one says is not kept back until the first is complete."""
    client = await deployment.start()
    deployment.decode.plans = [nothing, nothing]
    body = {"prompt": ["a", "b"], "stream": True, "stream_options": {"include_usage": True}}
    asked = asyncio.ensure_future(complete(client, **body))
    await deployment.decode.submitted(2)
    by_prompt = {prompt_of(submit): submit.request for submit in deployment.decode.submits}
    for prompt, text, finish in (("b", "one ", ""), ("a", "two ", ""), ("b", "three", "stop"), ("a", "four", "length")):
        deployment.decode.send(Tokens(by_prompt[prompt], words(text), finish))
    documents = events(await asked)
    assert texts(documents) == {0: "two four", 1: "one three"}
    order = [document["choices"][0]["index"] for document in documents if document["choices"]]
    assert order[:4] != sorted(order[:4])
    ends = {c["index"]: c["finish_reason"] for d in documents for c in d["choices"] if c["finish_reason"]}
    assert ends == {0: "length", 1: "stop"}
    assert documents[-1]["usage"]["prompt_tokens"] == 2
    assert documents[-1]["usage"]["completion_tokens"] == len("two fourone three")
    assert len({document["id"] for document in documents}) == 1


async def test_every_streamed_chat_choice_is_opened_and_closed(deployment: Deployment) -> None:
    client = await deployment.start()
    documents = events(await chat(client, n=3, stream=True))
    choices = [choice for document in documents for choice in document["choices"]]
    for index in range(3):
        mine = [choice for choice in choices if choice["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in mine] == [None] * (len(mine) - 1) + ["stop"]


async def test_usage_in_every_chunk(deployment: Deployment) -> None:
    """`continuous_usage_stats`: what was used so far, by all answers."""
    client = await deployment.start()
    options = {"include_usage": True, "continuous_usage_stats": True}
    documents = events(await complete(client, prompt="ab", n=2, stream=True, stream_options=options))
    counts = [document["usage"]["completion_tokens"] for document in documents]
    assert counts == sorted(counts)
    assert {document["usage"]["prompt_tokens"] for document in documents} == {2}
    assert counts[-1] == 10


@pytest.mark.parametrize("stream", [False, True])
async def test_when_one_fails_all_end(deployment: Deployment, stream: bool) -> None:
    """The client gets the one error, the workers of the others are told why."""
    client = await deployment.start(retries=0)
    deployment.prefill.plan = nothing
    deployment.decode.plans = [nothing, nothing, fail(fault=Fault.DECODE)]
    response = await chat(client, n=3, stream=stream)
    assert error_of(response, 500)["code"] == "boom"
    await deployment.decode.cancelled(2)
    assert {cancel.failure.code for cancel in deployment.decode.cancels} == {"sibling_failed"}
    assert deployment.server is not None
    assert not deployment.server.service.fleet._tries


async def test_when_one_fails_in_the_stream_it_ends_with_the_error(deployment: Deployment) -> None:
    client = await deployment.start(retries=0)
    deployment.decode.plans = [say("one", finish=""), nothing]
    asked = asyncio.ensure_future(chat(client, n=2, stream=True))
    await deployment.decode.submitted(2)
    deployment.decode.fail(deployment.decode.submits[1].request, Fault.DECODE)
    response = await asked
    assert response.status_code in (200, 500)
    assert "boom" in response.text
    assert "[DONE]" not in response.text


async def test_a_client_that_leaves_ends_all(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.prefill.plan = deployment.decode.plan = nothing
    asked = asyncio.ensure_future(client.post(CHAT, json=chat_body(n=4)))
    await deployment.decode.submitted(4)
    asked.cancel()
    await deployment.decode.cancelled(4)
    await deployment.prefill.cancelled(4)
    assert {cancel.failure.code for cancel in deployment.decode.cancels} == {"client_closed_request"}


async def test_a_client_that_leaves_a_stream_ends_all(deployment: Deployment) -> None:
    """Also the answers that wait for their turn to be told: nobody is told that another answer failed."""
    client = await deployment.start()
    deployment.prefill.plan = nothing
    deployment.decode.plan = say("more", finish="")
    async with client.stream("POST", CHAT, json=chat_body(n=3, stream=True)) as response:
        lines = response.aiter_lines()
        await until_said(lines, "more")
        await deployment.decode.submitted(3)
    await deployment.decode.cancelled(3)
    assert {cancel.failure.code for cancel in deployment.decode.cancels} == {"client_closed_request"}


async def test_a_large_batch_is_asked_for_in_parts(deployment: Deployment) -> None:
    """It does not fill the workers' queues by itself."""
    client = await deployment.start()
    deployment.decode.plan = nothing
    asked = asyncio.ensure_future(complete(client, prompt=["x"] * (AT_ONCE + 8)))
    await deployment.decode.submitted(AT_ONCE)
    for _ in range(3):
        await client.get("/health")
    assert len(deployment.decode.submits) == AT_ONCE
    deployment.decode.plan = say("ok")
    for submit in list(deployment.decode.submits):
        say("ok")(deployment.decode, submit)
    assert [choice["text"] for choice in (await asked).json()["choices"]] == ["ok"] * (AT_ONCE + 8)


async def test_each_answer_has_its_own_try_anew(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [fail(fault=Fault.TRANSPORT), say("one"), say("two")]
    choices = (await chat(client, n=2)).json()["choices"]
    assert {choice["message"]["content"] for choice in choices} == {"one", "two"}
