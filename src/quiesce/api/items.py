"""The body of `/v1/responses`, read as the chat that it is: items become messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from quiesce.api.asked import Asked, asked_of_chat
from quiesce.api.fields import refuse_others
from quiesce.api.formats import JsonSchema, JsonSchemaFormat, ResponseFormat, TextFormat
from quiesce.api.reading import invalid, read, refuse_deeper
from quiesce.api.requests import (
    AllowedList,
    AllowedResponseTools,
    AllowedTools,
    CalledFunction,
    ChatBody,
    Choice,
    FlatSchemaFormat,
    Function,
    FunctionNamed,
    InputItem,
    Message,
    NamedResponseTool,
    NamedTool,
    Part,
    ResponseBody,
    ResponseChoice,
    ResponseTool,
    TextConfig,
    Tool,
    ToolCallBody,
)
from quiesce.api.response_object import Repeated
from quiesce.api.tools import refuse_other_kinds
from quiesce.api.unsupported import INSTEAD_IN_RESPONSES
from quiesce.errors import RequestRejected

_SAME = (
    "model", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias", "min_tokens", "stop", "stop_token_ids", "ignore_eos", "stream", "timeout",
    "cache_salt", "priority", "parallel_tool_calls",
)  # fmt: skip
"""What chats have by the same name."""

_TEXT_PARTS = ("input_text", "output_text", "text")


def read_response(body: bytes, longest_tokens: int | None = None) -> Asked:
    """The body of `/v1/responses`. Raises RequestRejected, naming the parameter where there is one."""
    fields = read(body, dict[str, msgspec.Raw])
    refuse_others(fields, ResponseBody.__struct_fields__, INSTEAD_IN_RESPONSES)
    refuse_other_kinds(fields)
    response = read(body, ResponseBody)
    if response.store:
        raise _unsupported("store: no response is kept here; leave it out, or say false.", "store")
    if response.text and response.text.verbosity not in (None, "medium"):
        raise _unsupported('text.verbosity: only "medium" is supported.', "text.verbosity")
    try:
        asked = asked_of_chat(_as_chat(response), fields)
    except RequestRejected as error:
        raise _in_its_words(error) from None
    form = asked.grammar and msgspec.structs.replace(asked.grammar, param="text.format")
    return msgspec.structs.replace(asked, grammar=form, repeated=_repeated(response))


def _as_chat(response: ResponseBody) -> ChatBody:
    messages = _messages(response.input)
    if response.instructions is not None:
        messages.insert(0, Message("system", response.instructions))
    return ChatBody(
        messages=messages,
        max_completion_tokens=response.max_output_tokens,
        response_format=_form(response.text),
        tools=[_tool(tool) for tool in response.tools or ()],
        tool_choice=_choice(response.tool_choice),
        **{name: getattr(response, name) for name in _SAME},
    )


def _form(text: TextConfig | None) -> ResponseFormat | None:
    form = text.format if text else None
    if isinstance(form, FlatSchemaFormat):
        return JsonSchemaFormat(JsonSchema(form.name, form.schema, form.strict, form.description))
    return form


def _choice(choice: ResponseChoice) -> Choice:
    match choice:
        case NamedResponseTool():
            return _named(choice)
        case AllowedResponseTools(mode, tools):
            return AllowedTools(AllowedList(mode, [_named(tool) for tool in tools]))
        case _:
            return choice


def _named(tool: NamedResponseTool) -> NamedTool:
    return NamedTool(FunctionNamed(tool.name))


def _tool(tool: ResponseTool) -> Tool:
    return Tool("function", Function(tool.name, tool.description, tool.parameters))


def _in_its_words(error: RequestRejected) -> RequestRejected:
    """What is a level flatter here, or has another name."""

    def said(text: str) -> str:
        return text.replace(".function.parameters", ".parameters").replace("response_format", "text.format")

    param = error.param and said(error.param)
    return RequestRejected(said(error.message), code=error.code, status=error.status, param=param)


def _repeated(response: ResponseBody) -> Repeated:
    return Repeated(
        instructions=response.instructions,
        max_output_tokens=response.max_output_tokens,
        metadata=response.metadata or {},
        parallel_tool_calls=response.parallel_tool_calls is not False,
        temperature=1.0 if response.temperature is None else response.temperature,
        text={"format": (response.text and response.text.format) or TextFormat()},
        tool_choice=msgspec.to_builtins(response.tool_choice or "auto"),
        tools=[msgspec.to_builtins(tool) for tool in response.tools or ()],
        top_p=1.0 if response.top_p is None else response.top_p,
    )


# ---------------------------------------------------------------- items


def _messages(given: str | Sequence[InputItem]) -> list[Message]:
    """Calls belong to what the assistant said before them, as chat templates want it."""
    if isinstance(given, str):
        return [Message("user", given)]
    messages: list[Message] = []
    for index, item in enumerate(given):
        message = _message(item, f"input[{index}]")
        before = messages[-1] if messages else None
        if message.tool_calls and before and before.role == "assistant":
            calls = [*(before.tool_calls or ()), *message.tool_calls]
            messages[-1] = msgspec.structs.replace(before, tool_calls=calls)
        else:
            messages.append(message)
    return messages


def _message(item: InputItem, param: str) -> Message:
    reading = _READING.get(item.type)
    if reading is None:
        raise _unsupported(f"Items of type {item.type[:40]!r} are not supported, only {_SUPPORTED}.", param)
    return reading(item, param)


def _said(item: InputItem, param: str) -> Message:
    if item.role is None:
        raise invalid("A message needs a role.", f"{param}.role")
    return Message(item.role, _text(item.content, f"{param}.content"))


def _call(item: InputItem, param: str) -> Message:
    if item.name is None or item.arguments is None:
        raise invalid("A function_call needs name and arguments.", param)
    where = f"{param}.arguments"
    refuse_deeper(read(item.arguments.encode() or b"{}", dict[str, Any], where), where)
    call = ToolCallBody(CalledFunction(item.name, item.arguments), _call_id(item, param))
    return Message("assistant", tool_calls=[call])


def _result(item: InputItem, param: str) -> Message:
    return Message("tool", _text(item.output, f"{param}.output"), tool_call_id=_call_id(item, param))


_READING: dict[str, Callable[[InputItem, str], Message]] = {
    "message": _said,
    "function_call": _call,
    "function_call_output": _result,
}


_SUPPORTED = ", ".join(_READING)


def _call_id(item: InputItem, param: str) -> str:
    if item.call_id is None:
        raise invalid(f"A {item.type} needs a call_id.", f"{param}.call_id")
    return item.call_id


def _text(content: str | list[Part] | None, param: str) -> str | list[Part]:
    if content is None:
        raise invalid(f"{param} is missing.", param)
    if isinstance(content, str):
        return content
    for part in content:
        if part.type not in _TEXT_PARTS or part.text is None:
            raise _unsupported(f"Content parts of type {part.type[:40]!r} are not supported, only text.", param)
    return [Part("text", part.text) for part in content]


def _unsupported(message: str, param: str) -> RequestRejected:
    return RequestRejected(message, code="unsupported_parameter", param=param)
