from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.api.asked import Asked, read_chat, read_completion
from quiesce.api.unsupported import UNSUPPORTED
from quiesce.errors import RequestRejected

HI = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> Asked:
    return read_chat(json.dumps({"messages": [HI]} | fields).encode())


def completion(**fields: Any) -> Asked:
    return read_completion(json.dumps({"prompt": "hi"} | fields).encode())


def refusal(body: bytes) -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        read_chat(body)
    assert caught.value.status == 400
    return caught.value


def test_a_plain_chat() -> None:
    asked = chat(model="m", temperature=0, max_tokens=5, stop="x", stream=True, stream_options={"include_usage": True})
    assert asked.prompts == ([HI],)
    assert (asked.model, asked.temperature, asked.max_tokens, asked.stop) == ("m", 0.0, 5, ("x",))
    assert asked.stream
    assert asked.include_usage
    assert (asked.top_p, asked.top_k, asked.seed, asked.usual_max_tokens) == (1.0, 0, None, None)


def test_null_is_the_same_as_absent() -> None:
    names = ("temperature", "top_p", "top_k", "seed", "stop", "max_tokens", "stream", "stream_options", "tools", "n")
    assert chat(**dict.fromkeys(names)) == chat()


def test_max_completion_tokens_wins() -> None:
    assert chat(max_tokens=5, max_completion_tokens=7).max_tokens == 7


def test_a_completion_has_openais_default_length() -> None:
    assert completion().usual_max_tokens == 16
    assert completion().max_tokens is None


def test_text_parts_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat(messages=[{"role": "developer", "content": parts}])
    assert asked.prompts == ([{"role": "system", "content": "a\nb"}],)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hi", ("hi",)), ([1, 2], ([1, 2],)), (["hi"], ("hi",)), ([[3, 4]], ([3, 4],)), ([7], ([7],)),
        (["a", "b"], ("a", "b")), ([[1], [2, 3]], ([1], [2, 3])), ([[1], "a"], ([1], "a")),
    ],
)  # fmt: skip
def test_one_prompt_or_several(prompt: Any, expected: Any) -> None:
    assert completion(prompt=prompt).prompts == expected


def test_a_request_has_so_many_answers_and_no_more() -> None:
    assert completion(prompt=["a"] * 8, n=128).n == 128
    for fields, param in (({"prompt": ["a"] * 9, "n": 128}, "n"), ({"prompt": ["a"] * 1025}, "prompt")):
        with pytest.raises(RequestRejected, match="1024") as caught:
            completion(**fields)
        assert caught.value.param == param


def test_how_tokens_are_drawn() -> None:
    asked = chat(
        n=2, min_p=0.1, min_tokens=3, max_tokens=3, presence_penalty=-1, frequency_penalty=2, repetition_penalty=1.5,
        logit_bias={"7": 5, "0": -100},
    )  # fmt: skip
    assert (asked.n, asked.min_p, asked.min_tokens) == (2, 0.1, 3)
    assert (asked.presence_penalty, asked.frequency_penalty, asked.repetition_penalty) == (-1.0, 2.0, 1.5)
    assert asked.logit_bias == ((7, 5.0), (0, -100.0))


@pytest.mark.parametrize(
    ("asked", "logprobs"),
    [
        (chat(), None), (chat(logprobs=False, top_logprobs=0), None), (chat(logprobs=True), 0),
        (chat(logprobs=True, top_logprobs=5), 5), (completion(), None), (completion(logprobs=0), 0),
        (completion(logprobs=3), 3),
    ],
)  # fmt: skip
def test_logprobs_count_alternatives(asked: Asked, logprobs: int | None) -> None:
    assert asked.logprobs == logprobs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 3, "logprobs": False}, "top_logprobs"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"stream": False, "stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usages": True}}, "stream_options"),
    ],
)
def test_what_does_not_go_together(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        chat(**fields)
    assert (caught.value.code, caught.value.param) == ("invalid_value", param)


def test_min_tokens_counts_the_usual_length_of_a_completion() -> None:
    assert completion(min_tokens=16).min_tokens == 16
    assert completion(min_tokens=17, max_tokens=20).min_tokens == 17
    assert chat(min_tokens=17).min_tokens == 17
    with pytest.raises(RequestRejected, match="min_tokens"):
        completion(min_tokens=17)


def test_echo_may_tell_logprobs() -> None:
    asked = completion(echo=True, logprobs=1)
    assert (asked.echo, asked.logprobs) == (True, 1)


def test_best_of_is_refused_with_advice() -> None:
    for read in (chat, completion):
        with pytest.raises(RequestRejected, match=r"best_of.*n with logprobs"):
            read(best_of=4)


def test_no_tokens_are_the_prompt_alone() -> None:
    """Of the one token that workers must have room for nobody is told."""
    asked = completion(max_tokens=0, echo=True)
    assert (asked.prompt_alone, asked.max_tokens, asked.usual_max_tokens) == (True, None, 1)
    assert not completion(max_tokens=1, echo=True).prompt_alone


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "max_tokens"),
        ({"echo": False, "logprobs": 1}, "max_tokens"),
        ({"echo": True, "min_tokens": 1}, "min_tokens"),
    ],
)
def test_no_tokens_are_asked_for_with_echo_alone(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        completion(max_tokens=0, **fields)
    assert (caught.value.code, caught.value.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    "prompt", [None, [], [[]], [-1], [1 << 32], [1.5], [True], {}, 5, [1, "a"], ["a", 1], [[1], 1]]
)
def test_what_is_no_prompt(prompt: Any) -> None:
    with pytest.raises(RequestRejected) as caught:
        completion(prompt=prompt)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "prompt")


HARMFUL = {
    "best_of": 3, "echo": True, "suffix": "x", "prompt_logprobs": 0, "bad_words": ["x"], "allowed_token_ids": [1],
    "functions": [{}], "structural_tag": {}, "guided_whitespace_pattern": " ",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HARMFUL))
def test_parameters_that_would_change_the_answer_are_refused_by_name(name: str) -> None:
    with pytest.raises(RequestRejected, match=name) as caught:
        chat(**{name: HARMFUL[name]})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", name)


def test_their_harmless_values_pass() -> None:
    harmless = {
        "n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": False, "presence_penalty": 0,
        "frequency_penalty": 0.0, "repetition_penalty": 1, "min_p": 0, "logit_bias": {}, "tools": [],
        "tool_choice": "auto", "response_format": {"type": "text"}, "skip_special_tokens": True,
    }  # fmt: skip
    assert chat(**harmless) == chat()
    assert chat(**dict.fromkeys(UNSUPPORTED)) == chat()


@pytest.mark.parametrize(("name", "value"), [("best_of", True), ("echo", 0), ("n", True), ("logprobs", True)])
def test_zero_is_not_false_nor_one_true(name: str, value: Any) -> None:
    with pytest.raises(RequestRejected):
        completion(**{name: value})


def test_fields_that_steer_the_inside_are_stripped_and_named() -> None:
    asked = chat(
        bootstrap_host="evil", bootstrap_room=1, kv_transfer_params={"remote_host": "x"}, salt="s", Room=1,
        data_parallel_rank=0, disagg_prefill_dp_rank=1, metadata={"a": "b"}, service_tier="auto",
    )  # fmt: skip
    assert asked.stripped == (
        "bootstrap_*",
        "data_parallel_rank",
        "disagg_*",
        "kv_transfer_params",
        "room",
        "salt",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", 2.1), ("temperature", "hot"), ("temperature", True), ("top_p", 0),
        ("top_p", 1.5), ("top_k", -2), ("top_k", 1.5), ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 1e18),
        ("max_tokens", 10**400), ("max_completion_tokens", "5"), ("seed", 1 << 63), ("seed", "x"), ("stop", 5),
        ("stop", ""), ("stop", [""]), ("stop", ["a"] * 17), ("stop", ["a" * 513]), ("stop", [None]),
        ("stop_token_ids", [-1]), ("stop_token_ids", ["a"]), ("stream", 1),
        ("n", 0), ("n", 129), ("min_p", 1.1), ("min_tokens", -1), ("presence_penalty", 2.1), ("frequency_penalty", -3),
        ("repetition_penalty", 0), ("logit_bias", {"x": 1}), ("logit_bias", {"-1": 1}), ("logit_bias", {"1": 101}),
        ("logit_bias", {"1": None}), ("logit_bias", []), ("logprobs", 1), ("top_logprobs", 21), ("top_logprobs", True),
        ("stream_options", []), ("ignore_eos", 0),
        ("messages", []), ("messages", "hi"), ("messages", [{}]), ("messages", [{"role": "king", "content": "x"}]),
        ("messages", [HI | {"content": 5}]), ("messages", [HI | {"content": [{}]}]), ("timeout", 0), ("model", 3),
    ],
)  # fmt: skip
def test_wrong_types_and_absurd_numbers_name_their_parameter(name: str, value: Any) -> None:
    with pytest.raises(RequestRejected, match=name) as caught:
        chat(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (HI | {"content": None}, "messages[0].content"),
        (HI | {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content"),
        ({"role": "function", "content": "x"}, "messages[0]"),
    ],
)
def test_messages_that_cannot_be_shown_to_the_model(message: Any, param: str) -> None:
    assert refusal(json.dumps({"messages": [message]}).encode()).param == param


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b"{}x", b'{"messages": NaN}', b'\xef\xbb\xbf{"messages":[]}', b'{"a": 01}',
        b'{"messages":[{"role":"user","content":"\xff"}]}',
        rb'{"messages":[{"role":"user","content":"\ud800"}]}',
        rb'{"messages":[{"role":"user","content":"\ud800 and more text"}]}',
        rb'{"messages":[{"role":"user","content":"\udc00 and more text"}]}',
        rb'{"messages":[{"role":"user","content":"\ud800\u0041 and more text"}]}',
    ],
)  # fmt: skip
def test_what_is_no_json(body: bytes) -> None:
    """Broken text, invalid UTF-8 and lone surrogates: the tokenizer never sees them."""
    assert refusal(body).code == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b'"x"', b"[" * 100_000, b'{"messages":' + b"[" * 100_000])
def test_json_that_is_no_request(body: bytes) -> None:
    assert refusal(body).code in ("invalid_value", "invalid_json")


def test_deep_nesting_in_a_field_nobody_reads() -> None:
    deep = b'{"messages":[{"role":"user","content":"hi"}],"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert refusal(deep).message == "The body is nested too deeply."


@given(st.binary(max_size=60) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_no_body_raises_anything_else(body: bytes) -> None:
    for read in (read_chat, read_completion):
        with pytest.raises(RequestRejected):
            read(body)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@given(st.dictionaries(st.sampled_from(["stop", "n", "seed", "tools", "logit_bias", "min_p", "x", "stream"]), JSON))
def test_odd_values_are_refused_or_read_and_nothing_else(fields: dict[str, Any]) -> None:
    with suppress(RequestRejected):
        assert chat(**fields).is_chat


NASTY = {
    "too large a number": b"1e999",
    "too many digits": b"9" * 5000,
    "no UTF-8": b'"\xff"',
    "half a surrogate pair": rb'"\ud800"',
    "too large a number inside": b'{"a":1e9999}',
    "nested": b"[" * 900 + b"]" * 900,
    "long": b'"' + b"x" * 100_000 + b'"',
}


@pytest.mark.parametrize("value", NASTY.values(), ids=NASTY.keys())
@pytest.mark.parametrize(
    "name", ["n", "suffix", "logit_bias", "tools", "response_format", "temperature", "seed", "stop"]
)
def test_values_that_cannot_be_decoded_are_refused_by_name(name: str, value: bytes) -> None:
    """Also where the field is one that is looked at only to be refused."""
    with pytest.raises(RequestRejected) as caught:
        read_completion(b'{"prompt":"a","%s":%s}' % (name.encode(), value))
    assert caught.value.status == 400
    assert caught.value.param == name or caught.value.code == "invalid_json"
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("ids", ["[1,2,3]", "[[1,2,3]]", "[ 1 , 2 , 3 ]", "[1000000,2000000,3000000]"])
def test_token_ids_are_counted_before_they_are_decoded(ids: str) -> None:
    body = f'{{"prompt":{ids}}}'.encode()
    assert read_completion(body, 3).prompts
    with pytest.raises(RequestRejected, match="3 tokens") as caught:
        read_completion(body, 2)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")


def test_commas_of_a_text_are_no_token_ids() -> None:
    assert read_completion(b'{"prompt":["a,b,c,d,e,f"]}', 2).prompts == ("a,b,c,d,e,f",)


def test_a_body_of_countless_fields_is_not_looked_through() -> None:
    """Each one would be harmless, and a million of them a second of work."""
    error = refusal(json.dumps({"messages": [HI]} | {f"x{n}": None for n in range(300)}).encode())
    assert "301 parameters" in error.message
