from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from quiesce.api import requests, specification
from quiesce.api.asked import read_chat, read_completion
from quiesce.api.items import read_response
from quiesce.api.reading import read
from quiesce.text.grammars import Grammars, as_grammar
from quiesce.text.model import TextModel

DOCUMENT = specification.specification("1.2.3")
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.split('"')[0] in SCHEMAS


@pytest.mark.parametrize("example", specification.CHAT_EXAMPLES.values())
def test_examples_of_chats_are_accepted(example: Any) -> None:
    assert read_chat(json.dumps(example).encode()).is_chat


@pytest.mark.parametrize("example", specification.COMPLETION_EXAMPLES.values())
def test_examples_of_completions_are_accepted(example: Any) -> None:
    assert not read_completion(json.dumps(example).encode()).is_chat


@pytest.mark.parametrize("example", specification.RESPONSE_EXAMPLES.values())
def test_examples_of_responses_are_accepted(example: Any) -> None:
    assert read_response(json.dumps(example).encode()).repeated


def test_grammars_of_examples_can_be_followed() -> None:
    for example in (*specification.CHAT_EXAMPLES.values(), *specification.COMPLETION_EXAMPLES.values()):
        read_it = read_chat if "messages" in example else read_completion
        if grammar := read_it(json.dumps(example).encode()).grammar:
            Grammars(TextModel.load("tiny")).check(as_grammar(grammar.kind, grammar.text))


def test_other_examples_are_accepted() -> None:
    for example in specification.TOKENIZE_EXAMPLES.values():
        read(json.dumps(example).encode(), requests.TokenizeBody)
    for example in specification.DETOKENIZE_EXAMPLES.values():
        read(json.dumps(example).encode(), requests.DetokenizeBody)


@pytest.mark.parametrize(
    ("name", "body"),
    [(body.__name__, body) for body in (requests.ChatBody, requests.CompletionBody, requests.ResponseBody)],
)
def test_what_is_listed_is_what_is_read(name: str, body: type[msgspec.Struct]) -> None:
    assert set(SCHEMAS[name]["properties"]) == set(body.__struct_fields__)


def test_what_is_refused_is_told() -> None:
    described = DOCUMENT["paths"]["/v1/chat/completions"]["post"]["description"]
    assert "tools" not in described
    assert "tools" in DOCUMENT["paths"]["/v1/completions"]["post"]["description"]
    assert "best_of" in described
    assert "echo" in described
    assert "echo" not in DOCUMENT["paths"]["/v1/completions"]["post"]["description"]
