from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from quiesce.router.answer import Called, Calls, piece_of
from quiesce.text import tiny
from quiesce.text.call_grammar import call_grammar
from quiesce.text.grammars import Grammars, as_grammar
from quiesce.text.model import TextModel
from quiesce.text.tool_calls import FORMATS, CallFormat

TINY = TextModel.load("tiny")
GRAMMARS = Grammars(TINY)
X: dict[str, Any] = {
    "type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "required": ["x"], "additionalProperties": False,
    "$defs": {"X": {"enum": [1, "</tool_call>", '"']}},
}  # fmt: skip
NOTHING: dict[str, Any] = {"additionalProperties": False}
MOST_TOKENS = 600


def said(grammar: str, seed: int) -> str:
    """What a model that draws any token it may would say; "" when it does not come to an end."""
    matcher, rng, tokens = GRAMMARS.compile(as_grammar("grammar", grammar)), random.Random(seed), list[int]()
    while len(tokens) < MOST_TOKENS:
        allowed = np.flatnonzero(matcher.allowed()).tolist()
        token = rng.choice(allowed)
        if token in tiny.EOS_TOKEN_IDS:
            return TINY.decode(tokens)
        tokens.append(token)
        matcher.say(token)
    return ""


def read(form: CallFormat, text: str) -> tuple[str | Called, ...]:
    calls = Calls(form, ("f", "g-1"), only_one=False, forced=False)
    return piece_of(calls.read(text, "stop"), ()).parts


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("several", [False, True])
def test_whatever_is_said_is_read_as_calls(name: str, several: bool) -> None:
    """The two halves of a format: what the grammar allows, the reader takes, under its function's own schema."""
    grammar = call_grammar(FORMATS[name], {"f": X, "g-1": NOTHING}, several=several, special={})
    GRAMMARS.check(as_grammar("grammar", grammar))
    lengths = set()
    for text in filter(None, (said(grammar, seed) for seed in range(12))):
        calls = read(FORMATS[name], text)
        lengths.add(len(calls))
        for call in calls:
            assert isinstance(call, Called), text
            arguments = json.loads(call.arguments)
            assert arguments == {} if call.name == "g-1" else arguments["x"] in (1, "</tool_call>", '"')
    assert lengths == {1} if not several else max(lengths) > 1


@pytest.mark.parametrize("name", ["hermes", "mistral"])
def test_tags_that_are_special_tokens(name: str) -> None:
    """As text they could not be said: the vocabulary has them as tokens."""
    form = FORMATS[name]
    special = {form.begins: tiny.IM_START, "</tool_call>": tiny.END_OF_TEXT}
    text = said(call_grammar(form, {"f": X}, several=False, special=special), 1)
    assert text.startswith("<|im_start|>")
    assert form.begins not in text
    spelt = text.replace("<|im_start|>", form.begins).replace("<|endoftext|>", form.ends)
    assert [part.name for part in read(form, spelt) if isinstance(part, Called)] == ["f"]


@pytest.mark.parametrize("name", ["hermes", "mistral"])
def test_an_answer_of_another_form_or_calls(name: str) -> None:
    form = FORMATS[name]
    grammar = call_grammar(form, {"f": X}, several=False, special={}, otherwise={"enum": [{"a": 1}]})
    kinds = {tuple(type(part) for part in read(form, said(grammar, seed))) for seed in range(12)}
    assert kinds == {(str,), (Called,)}


OWN: dict[str, Any] = {"x-guidance": {"key_separator": "=", "item_separator": ";", "whitespace_flexible": True}}


@pytest.mark.parametrize("own", [OWN, {"x-guidance": 7}, {"x-guidance": {"bogus": 1}}])
def test_a_schema_does_not_say_how_json_is_written(own: Any) -> None:
    """Neither that of a function nor that of the form which may be instead, at the top or within."""
    schema = X | own | {"properties": {"x": {"type": "object", "properties": {"y": X | own}, **own}}}
    plain = X | {"properties": {"x": {"type": "object", "properties": {"y": X}}}}
    for mine, theirs in ((schema, plain), (plain, schema)):
        grammar = call_grammar(FORMATS["hermes"], {"f": mine}, several=False, special={}, otherwise=theirs)
        GRAMMARS.check(as_grammar("grammar", grammar))
        text = said(grammar, 3)
        assert json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))


def test_arguments_are_an_object_whatever_the_schema_says() -> None:
    grammar = call_grammar(FORMATS["hermes"], {"f": {"type": "integer"}}, several=False, special={})
    with_object = {text for seed in range(8) if (text := said(grammar, seed))}
    assert all(isinstance(read(FORMATS["hermes"], text)[0], Called) for text in with_object)
