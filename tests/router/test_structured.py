"""Structured output of a real model behind a whole server, prefill and decode apart: what was asked for comes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import pytest_asyncio

from quiesce.lab.cluster import Cluster

from .asking import CHAT, error_of, events

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain", "maths"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
AS_PERSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}}
NAMED = r"[A-Z][a-z]{2,9} is [0-9]{1,2}( years old)?\."
CHOICES = ["yes", "no", "it depends"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with (
        Cluster("--model", "smollm2", "--context-length", "512") as cluster,
        httpx.AsyncClient(base_url=cluster.url, timeout=120, trust_env=False) as client,
    ):
        yield client


def asking(content: str, **fields: Any) -> dict[str, Any]:
    told = {"messages": [{"role": "user", "content": content}], "temperature": 1, "n": 4, "max_tokens": 120}
    return told | fields


async def answers(client: httpx.AsyncClient, body: dict[str, Any]) -> list[str]:
    """What all choices say; each ended by itself."""
    response = await client.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    choices = response.json()["choices"]
    assert {choice["finish_reason"] for choice in choices} == {"stop"}
    return [choice["message"]["content"] for choice in choices]


@pytest.mark.parametrize("seed", [1, 2])
async def test_answers_are_valid_under_their_schema(client: httpx.AsyncClient, seed: int) -> None:
    said = await answers(client, asking("Invent a person. Answer in JSON.", seed=seed, **AS_PERSON))
    assert all(jsonschema_rs.is_valid(PERSON, json.loads(text)) for text in said), said
    assert len(set(said)) > 1


@pytest.mark.parametrize("seed", [1, 2])
async def test_answers_match_their_regex_wholly(client: httpx.AsyncClient, seed: int) -> None:
    said = await answers(client, asking("Who are you, and how old?", seed=seed, guided_regex=NAMED))
    assert all(re.fullmatch(NAMED, text) for text in said), said


async def test_answers_are_among_the_choices(client: httpx.AsyncClient) -> None:
    said = await answers(client, asking("Is rain wet?", seed=1, n=8, structured_outputs={"choice": CHOICES}))
    assert set(said) <= set(CHOICES)


async def test_a_grammar_is_followed(client: httpx.AsyncClient) -> None:
    lark = 'start: "[" /[0-9]{1,3}/ (", " /[0-9]{1,3}/){2} "]"'
    said = await answers(client, asking("Three numbers, please.", seed=1, guided_grammar=lark))
    assert all(len(json.loads(re.sub(r"\b0+(\d)", r"\1", text))) == 3 for text in said), said


async def test_a_stream_says_the_same(client: httpx.AsyncClient) -> None:
    body = asking("Invent a person. Answer in JSON.", seed=1, n=1, **AS_PERSON)
    [whole] = await answers(client, body)
    documents = events(await client.post(CHAT, json=body | {"stream": True}))
    choices = [choice for document in documents for choice in document["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == whole
    assert choices[-1]["finish_reason"] == "stop"


async def test_the_first_token_obeys_and_a_cut_answer_says_so(client: httpx.AsyncClient) -> None:
    """It is prefill that draws it, and nothing else in an answer of one token."""
    response = await client.post(CHAT, json=asking("Hello!", seed=1, max_tokens=1, guided_regex="[0-9]{30}"))
    for choice in response.json()["choices"]:
        assert choice["message"]["content"].isdigit()
        assert choice["finish_reason"] == "length"


async def test_beside_others_everybody_gets_what_was_asked_for(client: httpx.AsyncClient) -> None:
    """Different grammars, and none, in one batch."""
    person, named, free = await asyncio.gather(
        answers(client, asking("Invent a person. Answer in JSON.", seed=3, n=2, **AS_PERSON)),
        answers(client, asking("Who are you, and how old?", seed=3, n=2, guided_regex=NAMED)),
        client.post(CHAT, json=asking("Hello!", seed=3, n=2, max_tokens=12)),
    )
    assert all(jsonschema_rs.is_valid(PERSON, json.loads(text)) for text in person)
    assert all(re.fullmatch(NAMED, text) for text in named)
    assert free.status_code == 200


HARMFUL: dict[str, dict[str, Any]] = {
    "a schema that takes for ever": {"guided_json": {"type": "integer", "multipleOf": 99_999_989}},
    "a schema without an end": {"guided_json": {"$ref": "#"}},
    "a loop of references": {"guided_json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
    "a schema from elsewhere": {"guided_json": {"$ref": "http://127.0.0.1:9/schema.json"}},
    "a file": {"guided_json": {"$ref": "file:///etc/passwd"}},
    "a deep schema": {"guided_json": '{"items":' * 5000 + "{}" + "}" * 5000},
    "all combinations": {
        "guided_json": {"allOf": [{"anyOf": [{"properties": {f"{c}{i}": {}}} for c in "ab"]} for i in range(30)]}
    },
    "thousands of properties": {"guided_json": {"type": "object", "properties": {f"p{i}": {} for i in range(3000)}}},
    "a deep regex": {"guided_regex": "(" * 20_000 + ")" * 20_000},
    "a deep grammar": {"guided_grammar": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000},
    "a deep GBNF": {"ebnf": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000},
    "a grammar that never ends": {"guided_grammar": 'start: "a" start'},
    "rules that double": {
        "guided_grammar": "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)) + '\nr60: "a"'
    },
}


@pytest.mark.parametrize("name", HARMFUL)
async def test_what_would_harm_is_refused(client: httpx.AsyncClient, name: str) -> None:
    [(param, value)] = HARMFUL[name].items()
    error = error_of(await client.post(CHAT, json=asking("Hello!", **{param: value})), 400)
    assert (error["code"], error["param"]) == ("invalid_grammar", param)
    assert len(error["message"]) < 500


async def test_regexes_that_would_be_catastrophic_elsewhere_are_served(client: httpx.AsyncClient) -> None:
    for regex in ("(a+)+b", "(a{1,1000}){1,1000}", "(a|b)*a(a|b){200}"):
        response = await client.post(CHAT, json=asking("Hello!", n=1, max_tokens=8, guided_regex=regex))
        assert response.status_code == 200, response.text
        assert set(response.json()["choices"][0]["message"]["content"]) <= {"a", "b"}


async def test_what_grows_with_its_answer_is_served_or_ends_by_its_own_fault(client: httpx.AsyncClient) -> None:
    """Three levels of repetition: how far that can be followed depends on what is drawn, and on nothing else."""
    body = asking("Hello!", n=1, max_tokens=8, guided_regex="((a{1,1000}){1,1000}){1,1000}")
    for seed in range(3):
        response, again = [await client.post(CHAT, json=body | {"seed": seed}) for _ in range(2)]
        assert response.status_code == again.status_code
        if response.status_code != 200:
            assert error_of(response, 400)["code"] == "grammar_failed"
        else:
            assert set(response.json()["choices"][0]["message"]["content"]) <= {"a"}
