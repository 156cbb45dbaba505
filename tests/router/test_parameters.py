"""What becomes of each parameter on its way to the workers, and of what they tell on its way back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionUserMessageParam

from quiesce.protocol.dispatch import PromptTold, Sampling, Submit, Tokens
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Fault

from .asking import chat, complete, events
from .conftest import Deployment
from .fake_worker import FakeWorker, OnSubmit, nothing, say, words
from .openai_client import openai_client

E_ACUTE = tuple("é".encode())


def tell(*frames: tuple[str | tuple[int, ...], str]) -> OnSubmit:
    """Decode's part, with log probabilities: token t has -t/100, and "a" and "b" were the most likely ones."""

    def on_submit(worker: FakeWorker, submit: Submit) -> None:
        wanted = submit.sampling.logprobs
        for text, finish in frames:
            ids = words(text) if isinstance(text, str) else text
            top: Any = ((97, 98)[:wanted], (-0.5, -1.5)[:wanted])
            told = tuple(TokenLogprobs(-token / 100, *top) for token in ids) if wanted is not None else ()
            worker.send(Tokens(submit.request, ids, finish, logprobs=told))

    return on_submit


async def test_both_halves_are_told_how_to_draw(deployment: Deployment) -> None:
    client = await deployment.start()
    await chat(
        client, temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, seed=3, presence_penalty=0.5, frequency_penalty=-0.5,
        repetition_penalty=1.2, min_tokens=2, logit_bias={"65": 5, "66": -5}, logprobs=True, top_logprobs=4,
    )  # fmt: skip
    expected = Sampling(0.5, 0.9, 7, 3, 0.1, 0.5, -0.5, 1.2, 2, ((65, 5.0), (66, -5.0)), 4)
    assert deployment.decode.submits[0].sampling == deployment.prefill.submits[0].sampling == expected


async def test_logprobs_of_a_chat(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [tell(("x", ""), (E_ACUTE, "length"))]
    logprobs = (await chat(client, logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    x, first, second = logprobs["content"]
    likely = [{"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "b", "logprob": -1.5, "bytes": [98]}]
    assert x == {"token": "x", "logprob": -1.2, "bytes": [120], "top_logprobs": likely}
    assert (first["token"], first["bytes"], second["bytes"]) == ("\ufffd", [E_ACUTE[0]], [E_ACUTE[1]])


async def test_logprobs_of_a_completion(deployment: Deployment) -> None:
    """The token that was said stands among the likely ones; offsets count characters of the answer."""
    client = await deployment.start()
    deployment.decode.plans = [tell(("x", ""), (E_ACUTE, ""), ("y", "length"))]
    choice = (await complete(client, logprobs=1)).json()["choices"][0]
    assert choice["text"] == "xéy"
    assert choice["logprobs"]["tokens"] == ["x", "bytes:\\xc3", "bytes:\\xa9", "y"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2]
    assert choice["logprobs"]["token_logprobs"] == [-1.2, -1.95, -1.69, -1.21]
    assert choice["logprobs"]["top_logprobs"][0] == {"a": -0.5, "x": -1.2}


async def test_logprobs_are_null_unless_asked_for(deployment: Deployment) -> None:
    client = await deployment.start()
    assert (await complete(client)).json()["choices"][0]["logprobs"] is None
    deployment.decode.plans = [tell(("x", "length"))]
    told = (await complete(client, logprobs=0)).json()["choices"][0]["logprobs"]
    assert told["top_logprobs"] == [{"x": -1.2}]


async def test_streamed_logprobs_come_with_their_tokens(deployment: Deployment) -> None:
    """Also when the token's text cannot be shown yet."""
    client = await deployment.start()
    deployment.decode.plans = [tell(("x", ""), (E_ACUTE[:1], ""), (E_ACUTE[1:], "length"))]
    documents = events(await chat(client, stream=True, logprobs=True))
    pieces = [d["choices"][0] for d in documents if d["choices"][0]["logprobs"]]
    assert [piece["delta"]["content"] for piece in pieces] == ["x", "", "é"]
    assert [piece["logprobs"]["content"][0]["bytes"] for piece in pieces] == [[120], [0xC3], [0xA9]]


@pytest.mark.parametrize("prompt", ["hé", [104, *E_ACUTE], ["hé"]])
@pytest.mark.parametrize("stream", [False, True])
async def test_echo_shows_the_prompt_first(deployment: Deployment, prompt: Any, stream: bool) -> None:
    client = await deployment.start()
    response = await complete(client, prompt=prompt, echo=True, stream=stream)
    if stream:
        assert [d["choices"][0]["text"] for d in events(response)] == ["hé", "he", "llo", ""]
    else:
        assert response.json()["choices"][0]["text"] == "héhello"
        assert response.json()["usage"]["completion_tokens"] == 5


def tell_prompt(worker: FakeWorker, submit: Submit, *starts: int) -> None:
    """Prefill's word on a prompt, in pieces of two tokens: token n has -n/10, and "a" was the most likely one."""
    last = len(submit.token_ids) // 4
    for start in starts or range(1, last, 2):
        told = (TokenLogprobs(-at / 10, (97,), (-0.5,)) for at in range(start, min(start + 2, last)))
        worker.send(PromptTold(submit.request, start, tuple(told)))


@pytest.mark.parametrize("prompt", ["hé!", [104, *E_ACUTE, 33]])
@pytest.mark.parametrize("stream", [False, True])
async def test_echo_tells_the_prompts_logprobs_too(deployment: Deployment, prompt: Any, stream: bool) -> None:
    client = await deployment.start()
    deployment.prefill.plans = [tell_prompt]
    deployment.decode.plans = [tell(("x", "length"))]
    response = await complete(client, prompt=prompt, echo=True, logprobs=1, stream=stream)
    choices = [d["choices"][0] for d in events(response)] if stream else response.json()["choices"]
    told = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert "".join(choice["text"] for choice in choices) == "hé!x"
    assert [token for each in told for token in each["tokens"]] == ["h", "bytes:\\xc3", "bytes:\\xa9", "!", "x"]
    assert [offset for each in told for offset in each["text_offset"]] == [0, 1, 1, 2, 3]
    assert [value for each in told for value in each["token_logprobs"]] == [None, -0.1, -0.2, -0.3, -1.2]
    assert told[0]["top_logprobs"][0] is None
    assert told[0]["top_logprobs"][3] == {"a": -0.5, "!": -0.3}
    assert deployment.prefill.submits[0].tells_prompt


@pytest.mark.parametrize("said", [tell(("x", "length")), tell(((), "stop"))])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_alone_is_told_of(deployment: Deployment, said: OnSubmit, stream: bool) -> None:
    """Workers cannot but say a token, or the end of text: nobody hears of it, and nobody pays."""
    client = await deployment.start()
    deployment.prefill.plan, deployment.decode.plan = tell_prompt, said
    fields: dict[str, Any] = {"prompt": "hé!", "max_tokens": 0, "echo": True, "logprobs": 1, "n": 2}
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    response = await complete(client, **fields, **options)
    documents = events(response) if stream else [response.json()]
    assert documents[-1]["usage"]["completion_tokens"] == 0
    assert documents[-1]["usage"]["total_tokens"] == 4
    for index in range(2):
        choices = [choice for document in documents for choice in document["choices"] if choice["index"] == index]
        assert "".join(choice["text"] for choice in choices) == "hé!"
        assert choices[-1]["finish_reason"] == "length"
        (told,) = [choice["logprobs"] for choice in choices if choice["logprobs"]]
        assert told["tokens"] == ["h", "bytes:\\xc3", "bytes:\\xa9", "!"]
        assert told["token_logprobs"] == [None, -0.1, -0.2, -0.3]
    assert {submit.max_tokens for submit in deployment.decode.submits} == {1}


async def test_a_prompt_alone_without_logprobs_is_shown(deployment: Deployment) -> None:
    client = await deployment.start()
    choice = (await complete(client, prompt="hé", max_tokens=0, echo=True)).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == ("hé", "length", None)
    response = await complete(client, max_tokens=0)
    assert response.json()["error"]["param"] == "max_tokens"


async def test_decodes_words_wait_for_what_prefill_has_to_tell(deployment: Deployment) -> None:
    """Two workers' frames come in any order; what is out of order, or too much, changes nothing."""
    client = await deployment.start()
    deployment.prefill.plans, deployment.decode.plans = [nothing], [tell(("x", ""), ("y", "length"))]
    asked = asyncio.ensure_future(complete(client, prompt="hello", echo=True, logprobs=0))
    submit = await deployment.prefill.submitted()
    await deployment.decode.submitted()
    tell_prompt(deployment.prefill, submit, 3)
    tell_prompt(deployment.decode, submit)
    tell_prompt(deployment.prefill, submit)
    tell_prompt(deployment.prefill, submit, 1, 5)
    choice = (await asked).json()["choices"][0]
    assert choice["text"] == "helloxy"
    assert choice["logprobs"]["token_logprobs"] == [None, -0.1, -0.2, -0.3, -0.4, -1.2, -1.21]


async def test_prefill_that_is_lost_before_it_told_all_costs_a_try_and_not_the_answer(deployment: Deployment) -> None:
    """Though decode says words already: its client has seen none of them."""
    client = await deployment.start()

    def half(worker: FakeWorker, submit: Submit) -> None:
        tell_prompt(worker, submit, 1)
        worker.fail(submit.request, Fault.PREFILL)

    deployment.prefill.plans = [half, tell_prompt]
    deployment.decode.plan = tell(("x", "length"))
    choice = (await complete(client, prompt="hello", echo=True, logprobs=0)).json()["choices"][0]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.1, -0.2, -0.3, -0.4, -1.2]
    assert len(deployment.decode.submits) == 2


async def test_a_prompt_is_told_of_only_when_both_are_asked_for(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plan = tell(("x", "length"))
    for fields in ({"echo": True}, {"logprobs": 1}):
        assert (await complete(client, **fields)).status_code == 200
    assert not any(submit.tells_prompt for submit in deployment.decode.submits)


@pytest.mark.parametrize(
    ("min_tokens", "text", "tokens"), [(0, "", 1), (1, "Ea", 3), (2, "Ea", 3), (3, "EaEb", 4), (4, "EaEb", 4)]
)
async def test_stop_strings_wait_for_min_tokens(
    deployment: Deployment, min_tokens: int, text: str, tokens: int
) -> None:
    """At the first token too, if nothing must be said before."""
    client = await deployment.start()
    deployment.decode.plans = [say("EaEb", finish="length")]
    answer = (await complete(client, stop="E", min_tokens=min_tokens)).json()
    assert answer["choices"][0]["text"] == text
    assert answer["choices"][0]["finish_reason"] == ("stop" if tokens < 4 else "length")
    assert answer["usage"]["completion_tokens"] == tokens


async def test_the_openai_client_reads_logprobs_and_choices(deployment: Deployment) -> None:
    """Its types are checked against what came, not merely filled."""
    await deployment.start()
    hi: ChatCompletionUserMessageParam = {"role": "user", "content": "hi"}
    deployment.decode.plan = tell(("xy", "length"))
    async with openai_client(deployment) as client:
        answer = await client.chat.completions.create(model="tiny", messages=[hi], n=2, logprobs=True, top_logprobs=1)
        ChatCompletion.model_validate(answer.model_dump(), strict=True)
        told = answer.choices[1].logprobs
        assert told is not None
        assert told.content is not None
        assert [(entry.token, entry.logprob) for entry in told.content] == [("x", -1.2), ("y", -1.21)]
        text = await client.completions.create(model="tiny", prompt=["a", "b"], logprobs=1, logit_bias={"1": -5})
        Completion.model_validate(text.model_dump(), strict=True)
        assert text.choices[1].logprobs is not None
        assert text.choices[1].logprobs.top_logprobs == [{"a": -0.5, "x": -1.2}, {"a": -0.5, "y": -1.21}]
