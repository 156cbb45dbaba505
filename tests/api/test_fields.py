"""Nothing that would change the answer is ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quiesce.api.asked import read_chat, read_completion
from quiesce.api.fields import stripped
from quiesce.api.requests import ChatBody, CompletionBody
from quiesce.api.unsupported import HARMLESS, INSTEAD, UNSUPPORTED
from quiesce.errors import RequestRejected


def refusal(**fields: Any) -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        read_completion(json.dumps({"prompt": "hi"} | fields).encode())
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("max_new_tokens", "use max_tokens"), ("stop_sequences", "use stop"), ("max_completion_tokens", "max_tokens"),
        ("sampling_params", "top level"), ("maxTokens", "use max_tokens"), ("inputs", "use prompt"),
        ("messages", "ask /v1/chat/completions"), ("random_seed", "use seed"), ("topK", "use top_k"),
    ],
)  # fmt: skip
def test_foreign_names_are_refused_with_the_name_used_here(name: str, words: str) -> None:
    error = refusal(**{name: "x"})
    assert (error.code, error.param) == ("unsupported_parameter", name)
    assert name in error.message
    assert words in error.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_regex", "a+"), ("typical_p", 0.5), ("mirostat", 2), ("num_beams", 4), ("function_call", {"name": "f"}),
        ("do_sample", False), ("grammar", "root ::= x"),
    ],
)  # fmt: skip
def test_known_parameters_that_would_change_the_answer(name: str, value: Any) -> None:
    error = refusal(**{name: value})
    assert (error.code, error.param) == ("unsupported_parameter", name)


@pytest.mark.parametrize("name", ["foo", "", "Messages2", "x" * 100_000, "ü"])
def test_unknown_parameters(name: str) -> None:
    error = refusal(**{name: 1})
    assert (error.code, error.param) == ("unknown_parameter", name[:64])
    assert len(error.message) < 200


def test_a_misspelling_is_answered_with_what_was_meant() -> None:
    assert refusal(temprature=0).message == "There is no parameter 'temprature'. Did you mean temperature?"
    assert refusal(foo=0).message == "There is no parameter 'foo'."


def test_it_is_said_which_values_are_served() -> None:
    assert refusal(num_beams=2).message == "num_beams: only 1 is supported."
    assert refusal(functions=[{}]).message == 'functions: only [] or {} or "" is supported. Use tools.'
    assert refusal(structural_tag={}).message == "structural_tag is not supported; leave it out."
    assert refusal(grammar="x").message == 'grammar: only "" is supported. Use guided_grammar.'
    assert refusal(do_sample=False).message == "do_sample: only true is supported. Use temperature; 0 is greedy."


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_changes_nothing_passes(name: str) -> None:
    assert read_completion(json.dumps({"prompt": "hi", name: "x"}).encode()).stripped == ()


def test_null_is_no_request_for_anything() -> None:
    assert read_completion(b'{"prompt": "hi", "foo": null, "max_new_tokens": null, "tools": null}')


def test_what_is_only_for_the_other_endpoint_is_not_ignored() -> None:
    with pytest.raises(RequestRejected, match="ask /v1/completions"):
        read_chat(b'{"messages": [{"role": "user", "content": "hi"}], "prompt": "x"}')


def test_the_tables_do_not_contradict_each_other() -> None:
    honoured = {*ChatBody.__struct_fields__} & {*CompletionBody.__struct_fields__}
    assert not honoured & (UNSUPPORTED.keys() | INSTEAD.keys() | HARMLESS)
    assert not HARMLESS & (UNSUPPORTED.keys() | INSTEAD.keys())
    raw: Any = dict.fromkeys(UNSUPPORTED.keys() | INSTEAD.keys() | HARMLESS)
    assert stripped(raw) == ()
