"""Which fields say what an answer must match, and that they all come to the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quiesce.api.asked import read_chat, read_completion
from quiesce.api.formats import MOST_GRAMMAR_BYTES, Grammar
from quiesce.errors import RequestRejected

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "é"]}}}
WRITTEN = '{"type":"object","properties":{"a":{"enum":[1, "é"]}}}'


def grammar(**fields: Any) -> Grammar | None:
    body = {"prompt": "hi"} | fields
    asked = read_completion(json.dumps(body, ensure_ascii=False).encode()).grammar
    chat = {"messages": [{"role": "user", "content": "hi"}]} | fields
    assert read_chat(json.dumps(chat, ensure_ascii=False).encode()).grammar == asked
    return asked


def refusal(**fields: Any) -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        grammar(**fields)
    assert caught.value.status == 400
    return caught.value


def json_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA} | fields}


@pytest.mark.parametrize(
    ("param", "value", "kind", "text"),
    [
        ("response_format", {"type": "json_object"}, "json", '{"type":"object"}'),
        ("response_format", json_schema(), "json", WRITTEN),
        ("response_format", json_schema(strict=False, description="what it is for"), "json", WRITTEN),
        ("structured_outputs", {"json": SCHEMA}, "json", WRITTEN),
        ("structured_outputs", {"json": WRITTEN}, "json", WRITTEN),
        ("structured_outputs", {"json_object": True}, "json", '{"type":"object"}'),
        ("structured_outputs", {"regex": "a+", "json_object": False, "json": None}, "regex", "a+"),
        ("structured_outputs", {"choice": ["a", "é"]}, "choice", '["a","é"]'),
        ("structured_outputs", {"grammar": "start: x"}, "grammar", "start: x"),
        ("guided_json", SCHEMA, "json", WRITTEN),
        ("guided_json", WRITTEN, "json", WRITTEN),
        ("guided_json", {}, "json", "{}"),
        ("guided_regex", "a+", "regex", "a+"),
        ("guided_choice", ["", "b"], "choice", '["","b"]'),
        ("guided_grammar", "start: x", "grammar", "start: x"),
        ("json_schema", WRITTEN, "json", WRITTEN),
        ("regex", "a+", "regex", "a+"),
        ("ebnf", "root ::= x", "grammar", "root ::= x"),
    ],
    ids=str,
)
def test_what_an_answer_must_match(param: str, value: Any, kind: Any, text: str) -> None:
    found = grammar(**{param: value})
    assert found is not None
    assert (found.kind, found.param) == (kind, param)
    if kind == "json":  # parts of a schema stay as their client wrote them
        assert json.loads(found.text) == json.loads(text)
    else:
        assert found.text == text


@pytest.mark.parametrize("value", [None, {"type": "text"}])
def test_any_text_is_no_grammar(value: Any) -> None:
    assert grammar(response_format=value, guided_json=None, structured_outputs=None) is None


def test_any_text_may_stand_beside_a_grammar() -> None:
    assert grammar(response_format={"type": "text"}, regex="a") == Grammar("regex", "a", "regex")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"regex": "a", "ebnf": "root ::= x"}, "ebnf"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"response_format": {"type": "json_object"}, "guided_json": {}}, "guided_json"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"json": {}, "json_object": True}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {}}, "structured_outputs"),
    ],
)
def test_one_at_a_time(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("response_format", {"type": "xml"}), ("response_format", {}), ("response_format", "json_object"),
        ("response_format", {"type": "json_object", "schema": {}}), ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {}}}),
        ("response_format", json_schema(name="no spaces")), ("response_format", json_schema(schema=True)),
        ("response_format", json_schema(more=1)), ("structured_outputs", {"regexp": "a"}), ("structured_outputs", []),
        ("guided_json", 5), ("guided_json", []), ("guided_json", ""), ("guided_regex", ""), ("guided_regex", 1),
        ("guided_choice", []), ("guided_choice", [1]), ("guided_choice", "a"), ("guided_choice", ["a"] * 1025),
        ("guided_choice", ["a" * 4097]), ("guided_grammar", ""), ("ebnf", []), ("json_schema", {}),
        ("regex", "a" * (MOST_GRAMMAR_BYTES + 1)),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_wrong_values_name_their_parameter(param: str, value: Any) -> None:
    error = refusal(**{param: value})
    assert (error.code, error.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "é" * (MOST_GRAMMAR_BYTES // 2 + 1)},
        {"guided_json": {"description": "x" * MOST_GRAMMAR_BYTES}},
        {"guided_choice": ["x" * 4000] * 17},
        {"response_format": json_schema(schema={"title": "x" * MOST_GRAMMAR_BYTES})},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_too_large(fields: dict[str, Any]) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == ("invalid_grammar", next(iter(fields)))


def test_a_schema_that_is_nested_without_end() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    for field in (
        '"guided_json":%s',
        '"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":%s}}',
    ):
        with pytest.raises(RequestRejected) as caught:
            read_completion(b'{"prompt":"hi",' + (field % deep).encode() + b"}")
        assert caught.value.status == 400
