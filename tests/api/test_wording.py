from __future__ import annotations

import json
from typing import Any

import pytest

from quiesce.api.asked import read_chat
from quiesce.errors import RequestRejected

HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1."),
        ({"temperature": 3}, "temperature must be at most 2."),
        ({"top_p": 0}, "top_p must be more than 0."),
        ({"seed": "x"}, "seed must be a whole number, not a string."),
        ({"stream": 1}, "stream must be true or false, not a whole number."),
        ({"ignore_eos": 1.5}, "ignore_eos must be true or false, not a number."),
        ({"temperature": True}, "temperature must be a number, not a boolean."),
        ({"stop": ""}, "stop must not be empty."),
        ({"stop": 5}, "stop must be a string or a list, not a whole number."),
        ({"stop": ["a"] * 17}, "stop must have at most 16 items."),
        ({"stop": ["a" * 513]}, "stop[0] must have at most 512 characters."),
        ({"messages": []}, "messages must not be empty."),
        ({"messages": [{}]}, "messages[0].role is missing."),
        ({"messages": [HI | {"role": "king"}]}, "messages[0].role must not be 'king'."),
        ({"response_format": {"type": "xml"}}, "response_format.type must not be 'xml'."),
        ({"stream": True, "stream_options": {"include_usages": True}}, "stream_options has no field 'include_usages'."),
    ],
)
def test_bounds_and_types_are_told_in_english(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        read_chat(json.dumps({"messages": [HI]} | fields).encode())
    assert caught.value.message == words


@pytest.mark.parametrize(
    ("body", "words"), [(b"[]", "The body must be an object, not a list."), (b"{}", "messages is missing.")]
)
def test_the_body_itself(body: bytes, words: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        read_chat(body)
    assert caught.value.message == words


def test_a_long_value_is_not_said_back() -> None:
    with pytest.raises(RequestRejected) as caught:
        read_chat(json.dumps({"messages": [HI | {"role": "king" * 100_000}]}).encode())
    assert len(caught.value.message) < 300
