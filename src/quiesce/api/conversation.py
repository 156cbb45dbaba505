"""A conversation as clients write it, turned into what chat templates take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quiesce.api.reading import invalid, read, refuse_deeper
from quiesce.api.requests import Message, ToolCallBody
from quiesce.errors import RequestRejected


def as_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As a chat template takes them. Raises RequestRejected for what it cannot be shown."""
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Message, param: str) -> dict[str, Any]:
    if message.function_call is not None or message.role == "function":
        raise RequestRejected("Functions are called tools here.", code="unsupported_parameter", param=param)
    if message.tool_calls and message.role != "assistant":
        raise invalid(f"Only assistants call tools, no {message.role} does.", f"{param}.tool_calls")
    role = "system" if message.role == "developer" else message.role
    shown: dict[str, Any] = {"role": role, "content": _content(message, param)}
    if message.role == "tool":
        shown |= {name: told for name in ("tool_call_id", "name") if (told := getattr(message, name)) is not None}
    if message.tool_calls:
        shown["tool_calls"] = [
            _call(call, f"{param}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    return shown


def _content(message: Message, param: str) -> str:
    if message.content is None:
        if message.tool_calls:
            return ""
        raise invalid("A message needs content.", f"{param}.content")
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise RequestRejected(
                f"Content parts of type {part.type[:40]!r} are not supported, only text.",
                code="unsupported_parameter",
                param=f"{param}.content",
            )
    return "\n".join(part.text for part in message.content if part.text is not None)


def _call(call: ToolCallBody, param: str) -> dict[str, Any]:
    """Templates want the arguments as an object and write its JSON themselves."""
    where = f"{param}.function.arguments"
    arguments = read(call.function.arguments.encode() or b"{}", dict[str, Any], where)
    refuse_deeper(arguments, where)
    shown: dict[str, Any] = {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}
    return shown if call.id is None else {"id": call.id} | shown
