"""Every parameter gives the same answer from two processes as from one: the whole server, with and without a hand-off.

One side draws the first token at prefill and the rest at decode, the other all in one place. Whatever a draw depends on
(seed, step, what was said, what the prompt was) must be the same on both.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import jsonschema_rs
import pytest
import pytest_asyncio

from quiesce.lab.cluster import Cluster

from .asking import CHAT, COMPLETION, events, streamed_calls

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Body = dict[str, Any]
Document = dict[str, Any]

FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "1024", "--page-size", "4")
A, EOS = "65", "257"
FORCED: Body = {"logit_bias": {A: 100}}
"""Everything that is said is "A"."""
WARM: Body = {"temperature": 1.0, "seed": 11}
TOOL: Body = {"type": "function", "function": {"name": "rain", "parameters": {"type": "object"}}}
COLOUR: Body = {
    "type": "object", "properties": {"colour": {"enum": ["red", "blue", "</tool_call>"]}}, "required": ["colour"],
    "additionalProperties": False,
}  # fmt: skip
PAINT: Body = {"type": "function", "function": {"name": "paint", "parameters": COLOUR}}
CALLS: Body = {"prompt": "hello world", "max_tokens": 12, "temperature": 0}
CHATS: Body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "temperature": 0}


PERSON: Body = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
AS_PERSON: Body = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}}
WORDS = ["yes", "no", 'per\'haps "é"']


def completion(**fields: Any) -> Body:
    return CALLS | fields


def chat(**fields: Any) -> Body:
    return CHATS | fields


TABLE: dict[str, Body] = {
    "greedy": completion(),
    "drawn": completion(**WARM),
    "another seed": completion(**WARM | {"seed": 12}),
    "a negative seed": completion(**WARM | {"seed": -3}),
    "temperature": completion(**WARM | {"temperature": 1.9}),
    "top_p": completion(**WARM, top_p=0.3),
    "top_k": completion(**WARM, top_k=3),
    "min_p": completion(**WARM, min_p=0.8),
    "all that narrows": completion(**WARM, top_p=0.7, top_k=40, min_p=0.1),
    "presence_penalty": completion(**WARM, presence_penalty=2, logit_bias={A: 6}, max_tokens=24),
    "frequency_penalty": completion(**WARM, frequency_penalty=2, logit_bias={A: 6}, max_tokens=24),
    "repetition_penalty": completion(repetition_penalty=50, prompt=list(range(200)), max_tokens=24),
    "a negative penalty": completion(presence_penalty=-2, frequency_penalty=-2, max_tokens=24),
    "logit_bias": completion(logit_bias={A: 4, "66": -100}, **WARM),
    "logit_bias forces": completion(**FORCED),
    "max_tokens 1": completion(max_tokens=1),
    "max_tokens over page borders": completion(max_tokens=40),
    "usual max_tokens": {"prompt": "hello", "temperature": 0},
    "stop at the first token": completion(**FORCED, stop=["A"]),
    "stop over tokens": completion(**FORCED, stop=["AAA", "zz"]),
    "stop_token_ids at the first token": completion(**FORCED, stop_token_ids=[65]),
    "end of text at the first token": completion(logit_bias={EOS: 100}),
    "ignore_eos": completion(logit_bias={EOS: 100}, ignore_eos=True),
    "min_tokens and end of text": completion(logit_bias={EOS: 100}, min_tokens=5),
    "min_tokens and stop_token_ids": completion(**FORCED, stop_token_ids=[65], min_tokens=5),
    "min_tokens and stop": completion(**FORCED, stop="A", min_tokens=5),
    "min_tokens, drawn": completion(**WARM, logit_bias={EOS: 8}, min_tokens=7),
    "logprobs": completion(logprobs=5),
    "logprobs of none but the drawn": completion(**WARM, logprobs=0),
    "logprobs of the first token alone": completion(**WARM, logprobs=20, max_tokens=1),
    "logprobs of what bias forces": completion(**FORCED, logprobs=2),
    "logprobs and a stop": completion(**FORCED, logprobs=2, stop="AAA"),
    "echo": completion(echo=True),
    "echo with logprobs": completion(echo=True, logprobs=3),
    "echo of many chunks with logprobs": completion(prompt="many chunks " * 75, echo=True, logprobs=1, max_tokens=3),
    "echo of one token with logprobs": completion(prompt=[7], echo=True, logprobs=0, max_tokens=2),
    "echo of a batch with logprobs": completion(prompt=["one", "two, longer"], n=2, echo=True, logprobs=0, **WARM),
    "echo of ids": completion(prompt=[104, 0xC3, 0xA9], echo=True),
    "the prompt alone": completion(echo=True, max_tokens=0),
    "the prompt alone with logprobs": completion(prompt="ten tokens", echo=True, max_tokens=0, logprobs=3),
    "one token alone with logprobs": completion(prompt=[7], echo=True, max_tokens=0, logprobs=0),
    "a batch of prompts alone": completion(
        prompt=["one", "two, longer", "x" * 70], n=2, echo=True, max_tokens=0, logprobs=0, logit_bias={EOS: 100}
    ),
    "n": completion(**WARM, n=3),
    "a batch": completion(**WARM, prompt=["one", "two, longer", "x" * 70], logprobs=1),
    "a batch of ids, n each": completion(**WARM, prompt=[[1, 2, 3], [4]], n=2),
    "a prompt of many chunks": completion(prompt="many chunks " * 75, repetition_penalty=1.3, logprobs=1),
    "a prompt of one token": completion(prompt=[7], **WARM, repetition_penalty=3),
    "a full last page": completion(prompt="x" * 64, logprobs=1),
    "chat": chat(),
    "chat, drawn": chat(**WARM, n=2),
    "chat with logprobs": chat(**WARM, logprobs=True, top_logprobs=4),
    "chat with logprobs alone": chat(logprobs=True),
    "max_completion_tokens": chat(max_completion_tokens=3),
    "chat without a limit": CHATS | {"max_tokens": None, "logit_bias": {EOS: 3}, **WARM, "stop": ["x", "y"]},
    "json_schema": chat(**WARM, **AS_PERSON, max_tokens=80),
    "json_schema with what says nothing": chat(
        **WARM, max_tokens=80, guided_json=PERSON | {"not": False, "uniqueItems": False, "unevaluatedProperties": True}
    ),
    "json_schema, greedy": chat(**AS_PERSON, max_tokens=80),
    "json_schema, cut": completion(**WARM, **AS_PERSON, max_tokens=9),
    "json_object": chat(**WARM, response_format={"type": "json_object"}, logit_bias={"125": 50}, max_tokens=80),
    "text": chat(response_format={"type": "text"}),
    "guided_json": completion(guided_json=json.dumps({"enum": [True, None, 12, ["x"]]}), **WARM),
    "guided_regex": completion(guided_regex="[A-Z][a-z]{2,4}!", **WARM),
    "guided_regex of one token": completion(guided_regex="x", **WARM),
    "guided_regex that may end at once": completion(guided_regex="x*", **WARM | {"seed": 3}),
    "guided_choice": completion(guided_choice=WORDS, max_tokens=20, **WARM),
    "guided_choice of nothing": completion(guided_choice=[""], **WARM),
    "guided_grammar": completion(guided_grammar='start: "a" ("b" | "c")+ "."', **WARM, max_tokens=40),
    "GBNF": completion(guided_grammar='root ::= "a" [bc]+ "."', **WARM, max_tokens=40),
    "structured_outputs": completion(structured_outputs={"regex": "(ab|c){4}"}, **WARM),
    "SGLang's names": completion(ebnf='root ::= "a" | "b"', **WARM),
    "a grammar and n": completion(guided_regex="[a-z]{5}", **WARM, n=3),
    "a grammar and a batch": completion(guided_regex="[a-z]{5}", **WARM, prompt=["one", "two"], logprobs=2),
    "a grammar and what narrows": completion(guided_regex="[a-z]{9}", **WARM, top_k=5, top_p=0.9, min_p=0.01),
    "a grammar and penalties": completion(
        guided_regex="[a-e]{11}", **WARM, presence_penalty=2, frequency_penalty=2, repetition_penalty=1.5
    ),
    "a grammar and bias": completion(guided_regex="[ABC]{3}D?", **FORCED),
    "a grammar and a stop": completion(guided_regex="AAB{2,20}", **FORCED, stop=["ABB"]),
    "a grammar and a stop token": completion(guided_regex="AAB{2,20}", **FORCED, stop_token_ids=[66]),
    "a grammar and min_tokens": completion(guided_regex="a{1,9}", logit_bias={EOS: 100}, min_tokens=5),
    "a grammar and too many min_tokens": completion(guided_regex="a{1,3}", min_tokens=10),
    "a grammar and ignore_eos": completion(guided_regex="a{1,9}", logit_bias={EOS: 100}, ignore_eos=True),
    "a grammar and no ignore_eos": completion(guided_regex="a{1,9}", logit_bias={EOS: 100}),
    "everything and a grammar": chat(
        **WARM, n=2, top_p=0.95, top_k=100, min_p=0.001, presence_penalty=0.3, frequency_penalty=0.4,
        repetition_penalty=1.2, logit_bias={A: 2, EOS: 4}, min_tokens=6, logprobs=True, top_logprobs=3,
        stop=["qq", "zz"], stop_token_ids=[10, 33], guided_regex="[A-Za-z ]{4,30}",
    ),
    "tools": chat(tools=[TOOL], parallel_tool_calls=True),
    "tools that are allowed": chat(
        tools=[TOOL, PAINT],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "rain"}}]},
        },
    ),
    "tools that are not to be called": chat(tools=[TOOL], tool_choice="none"),
    "a tool's result": chat(
        tools=[TOOL],
        messages=[
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "rain", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "no"},
        ],
    ),
    "cache_salt": completion(cache_salt="mine"),
    "everything": chat(
        **WARM, n=2, top_p=0.95, top_k=100, min_p=0.001, presence_penalty=0.3, frequency_penalty=0.4,
        repetition_penalty=1.2, logit_bias={A: 2, EOS: 4}, min_tokens=6, logprobs=True, top_logprobs=3,
        stop=["q", "zz"], stop_token_ids=[10, 33],
    ),
}  # fmt: skip

SAID: dict[str, Callable[[Document], object]] = {
    "logit_bias forces": lambda answer: answer["choices"][0]["text"] == "A" * 12,
    "max_tokens 1": lambda answer: usage(answer) == (11, 1),
    "usual max_tokens": lambda answer: usage(answer) == (5, 16),
    "stop at the first token": lambda answer: end(answer) == ("", "stop"),
    "stop over tokens": lambda answer: end(answer) == ("", "stop") and usage(answer) == (11, 3),
    "stop_token_ids at the first token": lambda answer: end(answer) == ("", "stop") and usage(answer) == (11, 0),
    "end of text at the first token": lambda answer: end(answer) == ("", "stop"),
    "ignore_eos": lambda answer: usage(answer) == (11, 12) and end(answer)[1] == "length",
    "min_tokens and end of text": lambda answer: usage(answer) == (11, 5) and end(answer)[1] == "stop",
    "min_tokens and stop_token_ids": lambda answer: usage(answer) == (11, 5) and end(answer)[1] == "stop",
    "min_tokens and stop": lambda answer: end(answer) == ("A" * 5, "stop"),
    "logprobs": lambda answer: len(answer["choices"][0]["logprobs"]["tokens"]) == 12,
    "n": lambda answer: len({choice["text"] for choice in answer["choices"]}) == 3,
    "max_completion_tokens": lambda answer: answer["usage"]["completion_tokens"] == 3,
    "json_schema": lambda answer: is_person(text_of(answer)) and end(answer)[1] == "stop",
    "json_schema with what says nothing": lambda answer: is_person(text_of(answer)) and end(answer)[1] == "stop",
    "json_schema, greedy": lambda answer: is_person(text_of(answer)) and end(answer)[1] == "stop",
    "json_schema, cut": lambda answer: end(answer)[0].startswith('{"name": ') and end(answer)[1] == "length",
    "json_object": lambda answer: isinstance(json.loads(text_of(answer)), dict),
    "guided_json": lambda answer: end(answer)[0] in ("true", "null", "12", '["x"]') and end(answer)[1] == "stop",
    "guided_regex": lambda answer: re.fullmatch("[A-Z][a-z]{2,4}!", end(answer)[0]) and end(answer)[1] == "stop",
    "guided_regex of one token": lambda answer: end(answer) == ("x", "stop") and usage(answer) == (11, 1),
    "guided_choice": lambda answer: end(answer)[0] in WORDS and end(answer)[1] == "stop",
    "guided_choice of nothing": lambda answer: end(answer) == ("", "stop"),
    "guided_grammar": lambda answer: re.fullmatch(r"a[bc]+\.", end(answer)[0]),
    "GBNF": lambda answer: re.fullmatch(r"a[bc]+\.", end(answer)[0]),
    "structured_outputs": lambda answer: re.fullmatch("(ab|c){4}", end(answer)[0]),
    "SGLang's names": lambda answer: end(answer)[0] in ("a", "b"),
    "a grammar and n": lambda answer: len({choice["text"] for choice in answer["choices"]}) == 3,
    "a grammar and what narrows": lambda answer: re.fullmatch("[a-z]{9}", end(answer)[0]),
    "a grammar and penalties": lambda answer: re.fullmatch("[a-e]{11}", end(answer)[0]),
    "a grammar and bias": lambda answer: re.fullmatch("AAAD?", end(answer)[0]),
    "a grammar and a stop": lambda answer: end(answer) == ("A", "stop"),
    "a grammar and a stop token": lambda answer: end(answer) == ("AA", "stop"),
    "a grammar and min_tokens": lambda answer: end(answer) == ("aaaaa", "stop"),
    "a grammar and too many min_tokens": lambda answer: end(answer) == ("aaa", "stop"),
    "a grammar and ignore_eos": lambda answer: end(answer) == ("a" * 9, "stop"),
    "a grammar and no ignore_eos": lambda answer: end(answer) == ("a", "stop"),
    "echo with logprobs": lambda answer: told_of(answer) == [None, *"f" * 22],
    "echo of one token with logprobs": lambda answer: told_of(answer) == [None, "f", "f"],
    "the prompt alone": lambda answer: end(answer) == ("hello world", "length") and usage(answer) == (11, 0),
    "the prompt alone with logprobs": lambda answer: told_of(answer) == [None, *"f" * 9] and usage(answer) == (10, 0),
    "one token alone with logprobs": lambda answer: told_of(answer) == [None],
    "a batch of prompts alone": lambda answer: usage(answer) == (84, 0),
    "echo of ids": lambda answer: answer["choices"][0]["text"].startswith("hé"),
}
"""What the answer must be, where that can be said beforehand."""

WITHOUT: dict[str, Body] = {
    "drawn": {"temperature": 0},
    "another seed": {"seed": 11},
    "temperature": {"temperature": 1},
    "top_p": {"top_p": None},
    "top_k": {"top_k": None},
    "min_p": {"min_p": None},
    "presence_penalty": {"presence_penalty": 0},
    "frequency_penalty": {"frequency_penalty": 0},
    "repetition_penalty": {"repetition_penalty": 1},
    "a negative penalty": {"presence_penalty": None, "frequency_penalty": None},
    "logit_bias": {"logit_bias": None},
    "min_tokens, drawn": {"min_tokens": 0},
    "guided_regex": {"guided_regex": None},
    "a grammar and what narrows": {"top_k": None, "top_p": None, "min_p": None},
    "a grammar and penalties": {"presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1},
    "tools": {"tools": None},
}
"""The same request without what it is named for: another answer."""


def usage(answer: Document) -> tuple[int, int]:
    return answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]


def told_of(answer: Document) -> list[str | None]:
    """f for each token whose probability is told."""
    return [None if value is None else "f" for value in answer["choices"][0]["logprobs"]["token_logprobs"]]


def end(answer: Document) -> tuple[str, str]:
    return text_of(answer), answer["choices"][0]["finish_reason"]


def text_of(answer: Document) -> str:
    choice = answer["choices"][0]
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


def is_person(text: str) -> bool:
    return jsonschema_rs.is_valid(PERSON, json.loads(text))


class Modes:
    """Two servers with the same model."""

    def __init__(self, apart: httpx.AsyncClient, together: httpx.AsyncClient) -> None:
        self.apart = apart
        self.together = together

    async def documents(self, body: Body) -> tuple[Document, Document]:
        return await whole(self.apart, body), await whole(self.together, body)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def modes() -> AsyncIterator[Modes]:
    async with (
        Cluster(*FLAGS) as apart,
        Cluster(*FLAGS, "--mode", "aggregated") as together,
        httpx.AsyncClient(base_url=apart.url, timeout=60, trust_env=False) as one,
        httpx.AsyncClient(base_url=together.url, timeout=60, trust_env=False) as other,
    ):
        yield Modes(one, other)


def path_of(body: Body) -> str:
    return CHAT if "messages" in body else COMPLETION


async def whole(client: httpx.AsyncClient, body: Body) -> Document:
    """The answer without what is new each time."""
    response = await client.post(path_of(body), json=body)
    assert response.status_code == 200, response.text
    document: Document = response.json()
    assert document.pop("id")
    assert document.pop("created")
    return document


async def streamed(client: httpx.AsyncClient, body: Body) -> Document:
    """A stream put together: what each choice says, ends with, and tells of its tokens; and the usage."""
    told = {**body, "stream": True, "stream_options": {"include_usage": True}}
    documents = events(await client.post(path_of(body), json=told))
    choices: dict[int, Document] = {}
    for choice in (choice for document in documents for choice in document["choices"]):
        mine = choices.setdefault(choice["index"], {"text": "", "finish_reason": None, "logprobs": []})
        mine["text"] += choice.get("text") or choice.get("delta", {}).get("content") or ""
        mine["finish_reason"] = choice["finish_reason"] or mine["finish_reason"]
        mine["logprobs"] += tokens_of(choice)
    return {"choices": [choices[index] for index in sorted(choices)], "usage": documents[-1]["usage"]}


def tokens_of(choice: Document) -> list[str]:
    """What is told of each token, as text."""
    told = choice["logprobs"] or {}
    columns = [told[name] for name in ("text_offset", "tokens", "token_logprobs", "top_logprobs") if name in told]
    return [json.dumps(row) for row in (told["content"] if "content" in told else zip(*columns, strict=True))]


def as_streamed(document: Document) -> Document:
    """A whole answer, as `streamed` puts it."""
    choices = [
        {
            "text": choice["text"] if "text" in choice else choice["message"]["content"],
            "finish_reason": choice["finish_reason"],
            "logprobs": tokens_of(choice),
        }
        for choice in document["choices"]
    ]
    return {"choices": choices, "usage": document["usage"]}


@pytest.mark.parametrize("name", TABLE)
async def test_the_answer_is_the_same(modes: Modes, name: str) -> None:
    """Text, finish reason, log probabilities, usage: to the bit, whole and streamed, cold and with a prefix cached."""
    apart, together = await modes.documents(TABLE[name])
    assert apart == together
    assert SAID.get(name, bool)(apart), apart
    warm = [await streamed(client, TABLE[name]) for client in (modes.apart, modes.together)]
    assert warm[0] == warm[1]
    assert without_cached(warm[0]) == without_cached(as_streamed(apart))


def without_cached(document: Document) -> Document:
    """Asked again, a prompt's pages are in the cache."""
    return {**document, "usage": document["usage"] | {"prompt_tokens_details": None}}


@pytest.mark.parametrize(
    ("prompts", "cached"),
    [
        ([[9] * 3] * 2, [0, 0]),
        ([[8] * 5] * 3, [0, 4, 4]),
        ([[7] * 8] * 2, [0, 4]),
        ([[6] * 9, [6] * 8 + [1] * 3, [6] * 8 + [1] * 5], [0, 8, 8]),
        ([[5] * 64, [5] * 300, [5] * 300], [0, 64, 296]),
    ],
    ids=["less than a page", "a page and a token", "two pages", "branches", "longer"],
)
async def test_cached_tokens_are_the_same(modes: Modes, prompts: list[list[int]], cached: list[int]) -> None:
    for prompt, expected in zip(prompts, cached, strict=True):
        for document in await modes.documents(completion(prompt=prompt)):
            assert document["usage"]["prompt_tokens_details"] == {"cached_tokens": expected}


@pytest.mark.parametrize("name", WITHOUT)
async def test_the_parameter_does_something(modes: Modes, name: str) -> None:
    """It is not merely taken."""
    (answer, _), (other, _) = await modes.documents(TABLE[name]), await modes.documents(TABLE[name] | WITHOUT[name])
    assert as_streamed(answer)["choices"][0]["text"] != as_streamed(other)["choices"][0]["text"]


CALL_TABLE: dict[str, Body] = {
    "required": {"tool_choice": "required"},
    "named": {"tool_choice": {"type": "function", "function": {"name": "paint"}}},
    "required, one": {"tool_choice": "required", "parallel_tool_calls": False},
    "required, drawn": {"tool_choice": "required", **WARM, "n": 2, "logprobs": True},
    "required of those allowed": {
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "wash"}}]},
        },
        "parallel_tool_calls": False,
    },
    "required, cut in its arguments": {"tool_choice": "required", "n": 2, **WARM, "max_tokens": 52},
    "required, cut before them": {"tool_choice": "required", "max_tokens": 20},
    "a call or an answer in JSON": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": COLOUR}}
    },
}


@pytest.mark.parametrize("name", CALL_TABLE)
async def test_a_call_is_the_same(modes: Modes, name: str) -> None:
    """A model that knows nothing of tools calls one that is on offer, under its schema, when it must."""
    body = chat(tools=[TOOL, PAINT], max_tokens=160) | CALL_TABLE[name]
    if name.startswith("required"):
        body |= {"tools": [PAINT, PAINT | {"function": {"name": "wash", "parameters": COLOUR}}]}
    documents = []
    for client in (modes.apart, modes.together):
        whole = await client.post(CHAT, json=body)
        assert whole.status_code == 200, whole.text
        documents += [told_calls(whole.json()), await streamed_calls_of(client, body)]
    assert documents[0] == documents[1] == documents[2] == documents[3]
    if "cut" in name:
        begun = [["{"]] * 2 if "in its" in name else [[]]
        assert [(reason, [text[:1] for _, text in calls]) for reason, calls in documents[0]] == [
            ("length", each) for each in begun
        ]
        return
    several = name in ("required", "required, drawn")
    for reason, calls in documents[0]:
        assert reason == ("stop" if "answer" in name else "length" if reason == "length" and several else "tool_calls")
        assert len(calls) == 1 or (several and calls) or "answer" in name
        assert all(function in (["wash"] if "allowed" in name else ["paint", "wash"]) for function, _ in calls)
        assert all(json.loads(arguments)["colour"] in ("red", "blue", "</tool_call>") for _, arguments in calls)


def told_calls(document: Document) -> list[Any]:
    """Why each choice ended, and what it calls; of the markup nothing is ever content."""
    assert not any("<tool" in (choice["message"]["content"] or "") for choice in document["choices"])
    return [
        (choice["finish_reason"], [_function(call) for call in choice["message"].get("tool_calls", ())])
        for choice in document["choices"]
    ]


async def streamed_calls_of(client: httpx.AsyncClient, body: Body) -> list[Any]:
    documents = events(await client.post(CHAT, json=body | {"stream": True}))
    reasons = {c["index"]: c["finish_reason"] for document in documents for c in document["choices"]}
    calls = {index: streamed_calls(documents, index) for index in sorted(reasons)}
    return [(reasons[index], [(c["name"], c["arguments"]) for c in calls[index]]) for index in calls]


def _function(call: Document) -> tuple[str, str]:
    return call["function"]["name"], call["function"]["arguments"]


RESPONSES_TABLE: dict[str, Body] = {
    "text": {},
    "drawn": {**WARM, "top_p": 0.9, "top_k": 50, "min_p": 0.01, "presence_penalty": 1, "frequency_penalty": 1},
    "instructions": {"instructions": "Say A.", **FORCED, "repetition_penalty": 1.1},
    "ends": {"logit_bias": {EOS: 100}, "min_tokens": 5},
    "goes on": {"logit_bias": {EOS: 100}, "ignore_eos": True},
    "stop": {**FORCED, "stop": "AAA", "stop_token_ids": [66]},
    "items and tools": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
            {"type": "function_call", "call_id": "call_1", "name": "rain", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "no"},
        ],
        "tools": [{"type": "function", **TOOL["function"]}],
    },
    "a call that is cut": {
        "tools": [{"type": "function", **PAINT["function"]}, {"type": "function", **TOOL["function"]}],
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "paint"}]},
        "max_output_tokens": 55,
    },
    "form": {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["twelve characters"]}}}},
}


@pytest.mark.parametrize("name", RESPONSES_TABLE)
async def test_a_response_is_the_same(modes: Modes, name: str) -> None:
    """As one document, and as the last event of its stream."""
    body = {"input": "hi", "temperature": 0, "max_output_tokens": 12} | RESPONSES_TABLE[name]
    documents = []
    for client in (modes.apart, modes.together):
        whole = await client.post("/v1/responses", json=body)
        assert whole.status_code == 200, whole.text
        stream = await client.post("/v1/responses", json=body | {"stream": True})
        last = json.loads(stream.text.rstrip().rpartition("data: ")[2])["response"]
        documents += [_without_ids(whole.json()), _without_ids(last)]
    assert documents[:2] == documents[2:]
    cold, warm = (document | {"usage": None} for document in documents[:2])
    assert cold == warm
    assert documents[0]["usage"]["output_tokens"] == {"ends": 5, "stop": 3, "a call that is cut": 55}.get(name, 12)
    called = [(item["status"], item["name"], item["arguments"][:1]) for item in cold["output"] if "arguments" in item]
    assert called == ([("incomplete", "paint", "{")] if "call" in name else [])


def _without_ids(document: Document) -> Document:
    new = ("id", "call_id", "created_at")
    output = [{key: value for key, value in item.items() if key not in new} for item in document["output"]]
    return {key: value for key, value in document.items() if key not in new} | {"output": output}


async def test_a_prompts_logprobs_are_those_of_saying_it(modes: Modes) -> None:
    """What was generated is as likely when it is given; what is cached of it is computed anew."""
    body = completion(logprobs=2, max_tokens=30, prompt=[104, 105])
    for client in (modes.apart, modes.together):
        said = (await whole(client, body))["choices"][0]["logprobs"]
        given = body | {"prompt": [104, 105, *(byte_of(token) for token in said["tokens"])], "echo": True}
        for _ in range(2):
            told = (await whole(client, given | {"max_tokens": 0}))["choices"][0]["logprobs"]
            assert told["tokens"][2:] == said["tokens"]
            assert told["token_logprobs"][2:] == pytest.approx(said["token_logprobs"], abs=1e-4)
            assert [set(each) for each in told["top_logprobs"][2:]] == [set(each) for each in said["top_logprobs"]]


def byte_of(token: str) -> int:
    """The id of a token of `tiny`, from how it is written."""
    if token.startswith("bytes:"):
        return int(token.removeprefix("bytes:\\x"), 16)
    return {"<|im_start|>": 256, "<|im_end|>": 257, "<|endoftext|>": 258}.get(token) or ord(token)


async def test_a_batchs_answers_are_those_of_its_prompts_alone(modes: Modes) -> None:
    body = TABLE["a batch"]
    batch, _ = await modes.documents(body)
    for choice, prompt in zip(batch["choices"], body["prompt"], strict=True):
        alone, _ = await modes.documents(body | {"prompt": prompt})
        assert alone["choices"][0] == choice | {"index": 0}


@pytest.mark.parametrize(
    "fields",
    [
        {"best_of": 2},
        {"guided_regex": "("},
        {"suffix": "x"},
        {"logit_bias": {"259": 1}},
        {"max_tokens": 5000},
    ],
)
async def test_refusals_are_the_same(modes: Modes, fields: Body) -> None:
    refusals = [await client.post(COMPLETION, json=completion(**fields)) for client in (modes.apart, modes.together)]
    assert [refusal.status_code for refusal in refusals] == [400, 400]
    assert refusals[0].json() == refusals[1].json()
