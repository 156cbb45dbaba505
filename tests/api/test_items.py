from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.api.asked import Asked
from quiesce.api.formats import Grammar
from quiesce.api.items import read_response
from quiesce.errors import RequestRejected

HI = {"role": "user", "content": "hi"}
RAIN = {"type": "function", "name": "rain", "description": "Is it?", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "rain", "arguments": '{"at": "Oslo"}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "no"}


def response(**fields: Any) -> Asked:
    return read_response(json.dumps({"input": "hi"} | fields).encode())


def refusal(**fields: Any) -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        response(**fields)
    assert caught.value.status == 400
    return caught.value


def shown(call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "rain", "arguments": {"at": "Oslo"}}}


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"input": "hi"}, [HI]),
        ({"input": [HI | {"type": "message"}]}, [HI]),
        ({"input": "hi", "instructions": "Be brief."}, [{"role": "system", "content": "Be brief."}, HI]),
        ({"input": [{"role": "developer", "content": "x"}]}, [{"role": "system", "content": "x"}]),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": text} for text in "ab"]}]},
            [{"role": "user", "content": "a\nb"}],
        ),
        (
            {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]}]},
            [{"role": "assistant", "content": "a"}],
        ),
        (
            {"input": [HI, CALL, CALL | {"call_id": "c2"}, RESULT]},
            [
                HI,
                {"role": "assistant", "content": "", "tool_calls": [shown(), shown("c2")]},
                {"role": "tool", "content": "no", "tool_call_id": "c1"},
            ],
        ),
        (
            {"input": [{"role": "assistant", "content": "See:"}, CALL]},
            [{"role": "assistant", "content": "See:", "tool_calls": [shown()]}],
        ),
        (
            {"input": [RESULT | {"output": [{"type": "input_text", "text": "no"}]}]},
            [{"role": "tool", "content": "no", "tool_call_id": "c1"}],
        ),
    ],
)  # fmt: skip
def test_items_become_messages(fields: Any, messages: Any) -> None:
    assert response(**fields).prompts == (messages,)


def test_what_is_asked_for() -> None:
    asked = response(
        model="m", max_output_tokens=7, temperature=0.5, top_p=0.9, seed=3, stop="x", stream=True, timeout=5, top_k=2,
        tools=[RAIN], parallel_tool_calls=False, bootstrap_room=1, priority=3,
    )  # fmt: skip
    assert (asked.model, asked.max_tokens, asked.temperature, asked.top_p, asked.seed) == ("m", 7, 0.5, 0.9, 3)
    assert (asked.stop, asked.stream, asked.timeout_s, asked.top_k, asked.stripped) == (
        ("x",),
        True,
        5,
        2,
        ("bootstrap_*",),
    )
    assert asked.priority == 3
    assert asked.tools is not None
    assert (asked.tools.names, asked.tools.parallel) == (("rain",), False)
    function = {"name": "rain", "description": "Is it?", "parameters": {"type": "object"}}
    assert asked.tools.shown == ({"type": "function", "function": function},)


def test_its_form() -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "integer"}, "strict": True}
    asked = response(text={"format": form})
    assert asked.grammar == Grammar("json", '{"type":"integer"}', "text.format")
    assert asked.repeated is not None
    assert json.loads(msgspec.json.encode(asked.repeated.text)) == {"format": form | {"description": None}}
    assert response(text={"format": {"type": "json_object"}}).grammar is not None


def test_what_is_repeated() -> None:
    repeated = response(instructions="x", metadata={"a": "b"}, tools=[RAIN], tool_choice="none", top_p=0.5).repeated
    assert repeated is not None
    assert (repeated.instructions, repeated.metadata, repeated.top_p) == ("x", {"a": "b"}, 0.5)
    assert (repeated.tools, repeated.tool_choice) == ([RAIN], "none")


@pytest.mark.parametrize(("mode", "forced"), [("auto", ()), ("required", ("rain",))])
def test_tools_that_are_allowed(mode: str, forced: tuple[str, ...]) -> None:
    choice = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "rain"}]}
    asked = response(tools=[RAIN | {"name": "snow"}, RAIN], tool_choice=choice)
    assert asked.tools is not None
    assert asked.tools.forced == forced
    assert asked.tools.names == (("snow", "rain") if forced else ("rain",))
    assert asked.repeated is not None
    assert asked.repeated.tool_choice == choice
    assert len(asked.repeated.tools) == 2


def test_null_and_what_happens_anyway_are_the_same_as_absent() -> None:
    names = (
        "instructions",
        "metadata",
        "store",
        "tools",
        "text",
        "truncation",
        "stream",
        "reasoning",
        "max_tool_calls",
    )
    anyway = {
        "store": False, "truncation": "disabled", "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "background": False, "include": [], "top_logprobs": 0, "stream_options": {"include_obfuscation": True},
    }  # fmt: skip
    assert response(**dict.fromkeys(names)) == response(**anyway) == response()


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"store": True}, "unsupported_parameter", "store"),
        ({"previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
        ({"conversation": "c"}, "unsupported_parameter", "conversation"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"include": ["reasoning.encrypted_content"]}, "unsupported_parameter", "include"),
        ({"reasoning": {"effort": "low"}}, "unsupported_parameter", "reasoning"),
        ({"text": {"format": {"type": "grammar"}}}, "invalid_value", "text"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "invalid_value", "text"),
        ({"text": {"verbosity": "low"}}, "unsupported_parameter", "text.verbosity"),
        ({"text": {"verbosity": "huge"}}, "invalid_value", "text"),
        ({"text": {"fromat": {"type": "json_object"}}}, "invalid_value", "text"),
        ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"foo": 2}, "unknown_parameter", "foo"),
        ({"stream": True, "stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"input": None}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": [1]}, "invalid_value", "input"),
        ({"input": [{"type": "message", "content": "x"}]}, "invalid_value", "input[0].role"),
        ({"input": [HI, {"role": "user"}]}, "invalid_value", "input[1].content"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_parameter", "input[0]"),
        ({"input": [{"type": "reasoning"}]}, "unsupported_parameter", "input[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "unsupported_parameter", "input[0].content",
        ),
        ({"input": [CALL | {"arguments": "["}]}, "invalid_value", "input[0].arguments"),
        ({"input": [CALL | {"arguments": '{"a":' * 70 + "1" + "}" * 70}]}, "invalid_value", "input[0].arguments"),
        ({"input": [CALL | {"call_id": None}]}, "invalid_value", "input[0].call_id"),
        ({"input": [CALL | {"name": None}]}, "invalid_value", "input[0]"),
        ({"input": [RESULT | {"output": None}]}, "invalid_value", "input[0].output"),
        ({"metadata": {"a": "x" * 513}}, "invalid_value", "metadata"),
        ({"metadata": {"a" * 65: "x"}}, "invalid_value", "metadata"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "invalid_value", "metadata"),
        ({"metadata": {"a": 1}}, "invalid_value", "metadata"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"tools": [RAIN, {"type": "web_search"}]}, "unsupported_parameter", "tools[1]"),
        ({"tools": [RAIN], "tool_choice": {"type": "file_search"}}, "unsupported_parameter", "tool_choice"),
        ({"tools": [{"type": 1}]}, "invalid_value", "tools"),
        ({"tools": [RAIN, RAIN]}, "invalid_value", "tools"),
        ({"tool_choice": {"type": "function", "name": "rain"}}, "invalid_value", "tool_choice"),
        ({"tools": [RAIN], "tool_choice": {"type": "function", "name": "snow"}}, "invalid_value", "tool_choice"),
        ({"temperature": 3}, "invalid_value", "temperature"),
    ],
)  # fmt: skip
def test_what_is_refused(fields: Any, code: str, param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == (code, param)
    assert "messages" not in error.message


def test_refusals_use_the_words_of_this_dialect() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"a": deep}
    error = refusal(tools=[RAIN | {"parameters": deep}])
    assert error.param == "tools[0].parameters"
    assert error.message.startswith("tools[0].parameters is nested too deeply")
    assert "no response is kept" in refusal(previous_response_id="resp_1").message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": [{"type": "web_search"}]}, "type 'web_search' is not supported, only functions"),
        ({"tools": [RAIN], "tool_choice": {"type": "mcp"}}, "type 'mcp' is not supported, only function and allowed"),
        ({"input": [{"type": "reasoning"}]}, "only message, function_call, function_call_output"),
        ({"text": {"verbosity": "high"}}, 'only "medium" is supported'),
        ({"truncation": "auto"}, 'only "disabled" is supported'),
        ({"background": True}, "only false is supported"),
        ({"include": ["x"]}, "only [] is supported"),
        ({"top_logprobs": 2}, "only 0 is supported"),
        ({"reasoning": {"effort": "low"}}, "is not supported; leave it out"),
        ({"max_tokens": 5}, "use max_output_tokens"),
        ({"max_completion_tokens": 5}, "use max_output_tokens"),
        ({"max_new_tokens": 5}, "use max_output_tokens"),
        ({"messages": [HI]}, "use input"),
        ({"prompt": {"id": "x"}}, "use input"),
        ({"response_format": {"type": "json_object"}}, "use text.format"),
        ({"system_prompt": "x"}, "use instructions"),
        ({"n": 2}, "use /v1/chat/completions"),
        ({"guided_regex": "a"}, "use /v1/chat/completions"),
        ({"stream_options": {"include_usage": True}}, "stream_options has no field 'include_usage'"),
    ],
)
def test_refusals_say_what_is_not_supported(fields: Any, words: str) -> None:
    """And what is, by the names of this dialect."""
    error = refusal(**fields)
    assert words in error.message
    assert error.param is not None
    assert error.param.split("[")[0].split(".")[0] in fields


@given(st.binary(max_size=60) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_no_body_raises_anything_else(body: bytes) -> None:
    with pytest.raises(RequestRejected):
        read_response(body)
