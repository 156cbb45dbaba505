from __future__ import annotations

import json
from typing import Any

import pytest

from quiesce.api.asked import Asked, read_chat, read_completion
from quiesce.api.reading import MOST_DEPTH
from quiesce.errors import RequestRejected

HI = {"role": "user", "content": "hi"}
PLACE = {"type": "object", "properties": {"place": {"type": "string"}}}


def tool(name: str = "weather", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": PLACE} | fields}


def chat(**fields: Any) -> Asked:
    return read_chat(json.dumps({"messages": [HI]} | fields).encode())


def refusal(**fields: Any) -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        chat(**fields)
    assert caught.value.status == 400
    return caught.value


def allowed(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_what_a_template_is_shown() -> None:
    use = chat(tools=[tool(description="Weather now", strict=True), tool("time", parameters=None)]).tools
    assert use is not None
    assert use.shown == (
        {"type": "function", "function": {"name": "weather", "description": "Weather now", "parameters": PLACE}},
        {"type": "function", "function": {"name": "time"}},
    )
    assert use.names == ("weather", "time")


@pytest.mark.parametrize(("fields", "parallel"), [({}, True), ({"parallel_tool_calls": False}, False)])
def test_several_calls_unless_it_is_said(fields: Any, parallel: bool) -> None:
    use = chat(tools=[tool()], **fields).tools
    assert use is not None
    assert use.parallel is parallel


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"tools": []}, {"tools": None, "tool_choice": "auto"}, {"tool_choice": "none"},
        {"tools": [tool()], "tool_choice": "none"},
    ],
)  # fmt: skip
def test_no_tools(fields: Any) -> None:
    assert chat(**fields).tools is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [tool("a b")]}, "tools"), ({"tools": [tool("a" * 65)]}, "tools"), ({"tools": [tool("")]}, "tools"),
        ({"tools": [{"type": ["web_search"]}]}, "tools"), ({"tools": [{"function": {"name": "f"}}]}, "tools"),
        ({"tools": [tool(), tool()]}, "tools"), ({"tools": [tool(f"f{n}") for n in range(129)]}, "tools"),
        ({"tools": [tool(description="x" * (256 << 10))]}, "tools"), ({"tools": "f"}, "tools"),
        ({"tools": [tool(parameters=[])]}, "tools"),
        ({"tools": [tool(parameters=nested(MOST_DEPTH + 1))]}, "tools[0].function.parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": 5}}, "tool_choice"),
        ({"tool_choice": allowed("auto", "f")}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": allowed("auto")}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": allowed("none", "weather")}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": allowed("auto", "weather", "time")}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": allowed("required", "weather", *"f" * 128)}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice"),
        ({"tools": [tool()], "parallel_tool_calls": 1}, "parallel_tool_calls"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_tools(fields: Any, param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == ("invalid_value", param)
    assert param.split("[")[0] in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [tool(), {"type": "web_search"}]}, "tools[1]"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0]"),
        ({"tools": [tool()], "tool_choice": {"type": "mcp"}}, "tool_choice"),
    ],
)
def test_other_kinds_of_tools(fields: Any, param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == ("unsupported_parameter", param)
    assert "is not supported, only function" in error.message


def test_the_deepest_parameters() -> None:
    assert chat(tools=[tool(parameters=nested(MOST_DEPTH))]).tools


@pytest.mark.parametrize(
    ("choice", "forced", "parallel"),
    [
        ("auto", (), True), ("required", ("weather", "time"), True),
        ({"type": "function", "function": {"name": "time"}}, ("time",), False),
        (allowed("required", "time", "weather", "time"), ("weather", "time"), True),
        (allowed("required", "time"), ("time",), True), (allowed("auto", "time", "weather"), (), True),
    ],
)  # fmt: skip
def test_which_must_be_called(choice: Any, forced: Any, parallel: bool) -> None:
    """All are shown to the model; a named one is called once."""
    use = chat(tools=[tool(), tool("time")], tool_choice=choice).tools
    assert use is not None
    assert (use.forced, use.parallel, use.names) == (forced, parallel, ("weather", "time"))


def test_tools_that_are_not_allowed_are_not_shown_to_a_model_that_decides() -> None:
    use = chat(tools=[tool(), tool("time")], tool_choice=allowed("auto", "time")).tools
    assert use is not None
    assert (use.forced, use.names) == ((), ("time",))


def test_a_completion_has_no_tools() -> None:
    with pytest.raises(RequestRejected, match="tools"):
        read_completion(json.dumps({"prompt": "hi", "tools": [tool()]}).encode())


def call(arguments: str = '{"place": "Oslo"}', **fields: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}} | fields


def test_calls_and_results_as_templates_take_them() -> None:
    """Arguments become an object: templates write JSON themselves."""
    assistant = {"role": "assistant", "content": None, "tool_calls": [call(), call("", id=None)]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]}
    (messages,) = chat(messages=[HI, assistant, result]).prompts
    assert messages[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"place": "Oslo"}}},
                {"type": "function", "function": {"name": "weather", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
    ]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (HI | {"tool_calls": [call()]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": []}, "messages[0].content"),
        ({"role": "assistant", "tool_calls": [call("[1]")]}, "messages[0].tool_calls[0].function.arguments"),
        ({"role": "assistant", "tool_calls": [call("{")]}, "messages[0].tool_calls[0].function.arguments"),
        (
            {"role": "assistant", "tool_calls": [call(json.dumps(nested(65)))]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [call('{"a":' * 50_000 + "1" + "}" * 50_000)]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "tool_calls": [{}]}, "messages"),
        ({"role": "assistant", "tool_calls": [call(type="custom")]}, "messages"),
        ({"role": "assistant", "tool_calls": [call()] * 129}, "messages"),
        ({"role": "tool", "tool_call_id": "x" * 129, "content": ""}, "messages"),
        ({"role": "tool", "tool_call_id": "x"}, "messages[0].content"),
    ],
)
def test_turns_that_are_wrong(message: Any, param: str) -> None:
    error = refusal(messages=[message])
    assert (error.code, error.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [tool("f\n")]},
        {"logit_bias": {"1\n": 1}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "f\n", "schema": {}}}},
    ],
)
def test_names_end_where_they_seem_to(fields: Any) -> None:
    """Python's `$` also matches in front of a last newline."""
    assert refusal(**fields).param == next(iter(fields))
