from __future__ import annotations

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from quiesce.protocol.dispatch import HandedOff, Submit, Tokens
from quiesce.protocol.messages import Fault

from .asking import begun, chat, complete, events, streamed_text
from .conftest import Deployment
from .fake_worker import FakeWorker, hand_off, nothing, say, words
from .openai_client import openai_client


async def test_a_chat_in_one_document(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("he", "llo", cached=3)]
    response = await chat(client)
    answer = response.json()
    assert response.status_code == 200
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "hello", "refusal": None}
    assert answer["choices"][0]["finish_reason"] == "stop"
    prompt_tokens = len("<|user\nhi<|\n<|assistant\n") - 3  # ChatML's three marks are one token each
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 5,
        "total_tokens": prompt_tokens + 5,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


async def test_both_halves_get_the_same_request_at_once(deployment: Deployment) -> None:
    """Same tokens, room and id; decode is told whose partner it is; a seed is drawn."""
    client = await deployment.start()
    await chat(client, max_tokens=7, top_k=5, stop_token_ids=[9], user="u")
    prefill, decode = deployment.prefill.submits[0], deployment.decode.submits[0]
    assert prefill == decode
    assert bytes(prefill.token_ids[::4]).endswith(b"assistant\n")
    assert (decode.prefill, decode.max_tokens, decode.sampling.top_k) == ("prefill-0", 7, 5)
    assert decode.stop_token_ids == (9,)
    assert decode.sampling.seed is not None
    assert decode.salt == ""
    await chat(client, seed=-1)
    assert deployment.decode.submits[1].sampling.seed == (1 << 63) - 1
    assert deployment.decode.submits[1].room != decode.room
    assert not deployment.prefill.cancels + deployment.decode.cancels


async def test_a_streamed_chat(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("he", "llo \xf0", "!", finish="length")]
    documents = events(await chat(client, stream=True, stream_options={"include_usage": True}))
    assert documents[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert streamed_text(documents) == "hello \xf0!"
    assert documents[-2]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "length", "logprobs": None}
    assert documents[-1]["choices"] == []
    assert documents[-1]["usage"]["completion_tokens"] == 9
    assert {document["id"] for document in documents} == {documents[0]["id"]}
    assert all(document["usage"] is None for document in documents[:-1])


async def test_without_include_usage_no_chunk_has_usage(deployment: Deployment) -> None:
    client = await deployment.start()
    assert not any("usage" in document for document in events(await chat(client, stream=True)))


async def test_chunks_come_as_tokens_come(deployment: Deployment) -> None:
    """The first token reaches the client while decode has not said more."""
    client = await deployment.start()
    async with begun(client, deployment.decode) as lines:
        submit = await deployment.decode.submitted()
        deployment.decode.send(Tokens(submit.request, words("second"), "stop"))
        rest = [line async for line in lines]
    assert any("second" in line for line in rest)
    assert rest[-2] == "data: [DONE]"


async def test_a_character_split_over_frames_is_never_broken(deployment: Deployment) -> None:
    client = await deployment.start()

    def split(worker: FakeWorker, submit: Submit) -> None:
        for byte in "a😀".encode():
            worker.send(Tokens(submit.request, (byte,)))
        worker.send(Tokens(submit.request, (), "stop"))

    deployment.decode.plans = [split]
    documents = events(await chat(client, stream=True))
    assert streamed_text(documents) == "a😀"
    assert len(documents) == 4  # role, "a", the emoji, finish


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_over_token_borders(deployment: Deployment, stream: bool) -> None:
    """The answer ends there, and decode, which goes on generating, is told to stop."""
    client = await deployment.start()
    deployment.decode.plans = [say("one E", "N", "D two", finish="")]
    response = await chat(client, stop=["END"], stream=stream)
    cancel = await deployment.decode.cancelled()
    assert cancel.request == deployment.decode.submits[0].request
    assert cancel.failure.fault is Fault.CLIENT
    if stream:
        documents = events(response)
        assert streamed_text(documents) == "one "
        assert documents[-1]["choices"][0]["finish_reason"] == "stop"
    else:
        assert response.json()["choices"][0]["message"]["content"] == "one "
        assert response.json()["choices"][0]["finish_reason"] == "stop"


async def test_a_possible_stop_string_is_shown_when_it_is_none(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("one E", "N", finish="length")]
    choice = (await chat(client, stop="END")).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one EN", "length")


async def test_an_empty_answer(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(""), say("")]
    assert (await chat(client)).json()["choices"][0]["message"]["content"] == ""
    assert streamed_text(events(await chat(client, stream=True))) == ""


@pytest.mark.parametrize("prompt", ["hi", ["hi"], [104, 105], [[104, 105]]])
async def test_completions(deployment: Deployment, prompt: object) -> None:
    client = await deployment.start()
    answer = (await complete(client, prompt=prompt)).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": "hello", "finish_reason": "stop", "logprobs": None}]
    assert answer["usage"]["prompt_tokens"] == 2
    assert deployment.decode.submits[0].max_tokens == 16


async def test_a_streamed_completion(deployment: Deployment) -> None:
    client = await deployment.start()
    documents = events(await complete(client, stream=True, stream_options={"include_usage": True}))
    assert [document["choices"][0]["text"] for document in documents[:-1]] == ["he", "llo", ""]
    assert documents[-2]["choices"][0]["finish_reason"] == "stop"
    assert documents[-1]["usage"]["total_tokens"] == 7


async def test_an_absent_max_tokens_is_clipped_to_what_fits(deployment: Deployment) -> None:
    """For chats all that fits; for completions the usual 16, or what fits of them."""
    for worker in deployment.workers:
        worker.context_length = 40
    client = await deployment.start()
    await chat(client)
    await complete(client, prompt=[1] * 35)
    prompt_tokens = len(deployment.decode.submits[0].token_ids) // 4
    assert [submit.max_tokens for submit in deployment.decode.submits] == [40 - prompt_tokens, 5]


async def test_an_aggregated_worker_gets_the_whole_request(deployment: Deployment) -> None:
    alone = deployment.worker("aggregated-0", "aggregated")
    deployment.workers = [alone]
    client = await deployment.start()
    assert (await chat(client)).json()["choices"][0]["message"]["content"] == "hello"
    assert alone.submits[0].prefill == ""


async def test_many_requests_at_once(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plan = lambda worker, submit: say(str(submit.max_tokens))(worker, submit)
    answers = await asyncio.gather(*(chat(client, max_tokens=1 + n) for n in range(50)))
    assert [answer.json()["choices"][0]["message"]["content"] for answer in answers] == [str(1 + n) for n in range(50)]


async def test_frames_about_strangers_change_nothing(deployment: Deployment) -> None:
    """Prefill may not speak for decode; late frames of a finished request are dropped."""
    client = await deployment.start()

    def liar(worker: FakeWorker, submit: Submit) -> None:
        worker.send(Tokens(submit.request, words("lie"), "stop"))

    deployment.prefill.plans, deployment.decode.plans = [liar], [nothing]
    asked = asyncio.ensure_future(chat(client))
    submit = await deployment.decode.submitted()
    deployment.decode.send(HandedOff(submit.request))
    hand_off(deployment.prefill, submit)
    deployment.decode.send(Tokens(submit.request, words("truth"), "stop"))
    deployment.decode.send(Tokens(submit.request, words("late"), "stop"))
    assert (await asked).json()["choices"][0]["message"]["content"] == "truth"


async def test_the_openai_client(deployment: Deployment) -> None:
    await deployment.start()
    hi: ChatCompletionUserMessageParam = {"role": "user", "content": "hi"}
    async with openai_client(deployment) as client:
        whole = await client.chat.completions.create(model="tiny", messages=[hi])
        assert whole.choices[0].message.content == "hello"
        stream = await client.chat.completions.create(model="tiny", messages=[hi], stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "hello"
        assert [model.id async for model in client.models.list()] == ["tiny"]
        text = await client.completions.create(model="tiny", prompt="hi")
        assert text.choices[0].text == "hello"
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.completions.create(model="other", prompt="hi")
