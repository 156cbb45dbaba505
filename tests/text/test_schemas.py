from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from quiesce.text.call_grammar import call_grammar
from quiesce.text.grammars import Grammars, Unusable, as_grammar
from quiesce.text.model import TextModel
from quiesce.text.schemas import without_idle
from quiesce.text.tool_calls import FORMATS

GRAMMARS = Grammars(TextModel.load("tiny"))
IDLE: list[dict[str, Any]] = [
    {"uniqueItems": False}, {"unevaluatedItems": True}, {"unevaluatedItems": {}}, {"unevaluatedProperties": True},
    {"unevaluatedProperties": {}}, {"propertyNames": True}, {"propertyNames": {"type": "string"}},
    {"dependentRequired": {}}, {"dependentSchemas": {}}, {"dependencies": {}}, {"not": False}, {"if": {"type": "null"}},
    {"then": False}, {"else": False}, {"minContains": 2}, {"maxContains": 0},
]  # fmt: skip
TOLD: list[dict[str, Any]] = [
    {"uniqueItems": True}, {"unevaluatedItems": False}, {"unevaluatedProperties": False}, {"not": True},
    {"propertyNames": {"pattern": "^a"}}, {"dependentRequired": {"a": ["b"]}}, {"contains": {}, "minContains": 2},
    {"if": {"type": "array"}, "then": {"minItems": 3}}, {"uniqueItems": 0},
]  # fmt: skip
VALUES: list[Any] = [1, "a", None, [], [1], [1, 1], {}, {"a": 1}, {"a": 1, "c": [2, 2]}]


@pytest.mark.parametrize("keywords", IDLE, ids=json.dumps)
def test_what_says_nothing_is_left_out(keywords: dict[str, Any]) -> None:
    """A validator that knows all of JSON Schema finds no difference, and the grammar's library takes the rest."""
    assert without_idle(keywords) == {}
    assert all(jsonschema_rs.is_valid(keywords, value) for value in VALUES)
    array = {"type": "array", "items": {"type": "integer"}, **keywords}
    asked = {
        "anyOf": [array, {"type": "object", "properties": {"x": array}, "additionalProperties": array, **keywords}]
    }
    GRAMMARS.check(as_grammar("json", json.dumps(asked)))
    call = {"type": "object", "properties": {"x": array}, **keywords}
    GRAMMARS.check(call_grammar(FORMATS["hermes"], {"f": call}, several=False, special={}, otherwise=asked))


@pytest.mark.parametrize("keywords", TOLD, ids=json.dumps)
def test_what_says_something_stays(keywords: dict[str, Any]) -> None:
    assert without_idle({"items": keywords}) == {"items": keywords}
    with pytest.raises(Unusable):
        GRAMMARS.check(as_grammar("json", json.dumps({"type": "array", **keywords})))


def test_names_and_values_are_no_keywords() -> None:
    same: dict[str, Any] = {
        "type": "object",
        "properties": {"uniqueItems": {"const": {"uniqueItems": False}}, "not": {"enum": [{"not": False}]}},
        "$defs": {"if": {"default": {"then": 1}, "examples": [{"uniqueItems": False}]}},
    }
    assert without_idle(same) == same
    assert without_idle({"properties": {"if": {"if": True}}, "allOf": [{"not": False}, True]}) == {
        "properties": {"if": {}}, "allOf": [{}, True],
    }  # fmt: skip
