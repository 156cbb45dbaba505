"""The tools that a client offers, checked: how many, how large, how deep, and which of them may or must be called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from quiesce.api.reading import invalid, refuse_deeper
from quiesce.api.requests import AllowedList, AllowedTools, ChatBody, Choice, NamedTool, Tool
from quiesce.errors import RequestRejected

T = TypeVar("T")

MOST_TOOLS_BYTES = 256 << 10


class _Kind(msgspec.Struct, frozen=True):
    """Of a tool, or of a choice of tools."""

    type: str = "function"


class ToolUse(msgspec.Struct, frozen=True):
    """`shown` are the tools as a chat template takes them. `parallel`: one answer may call several times.

    `forced` names the functions one of which must be called; none: the model decides.
    """

    shown: tuple[dict[str, Any], ...]
    parallel: bool
    forced: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """Of each function's parameters, by its name."""
        return {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in self.shown}


def refuse_other_kinds(fields: Mapping[str, msgspec.Raw]) -> None:
    """Raises RequestRejected for tools that a server would have to run, of which this one has none, and other kinds.

    `fields` are those of a body. What is no list of tools, or no choice of one, is left to whoever reads it.
    """
    tools = _as_kinds(fields.get("tools", _NULL), list[_Kind])
    for index, tool in enumerate(tools or ()):
        if tool.type != "function":
            raise _not_supported(f"tools[{index}]", tool.type, "only functions, which the client runs")
    choice = _as_kinds(fields.get("tool_choice", _NULL), _Kind)
    if choice and choice.type not in ("function", "allowed_tools"):
        raise _not_supported("tool_choice", choice.type, "only function and allowed_tools")


_NULL = msgspec.Raw(b"null")


def _as_kinds(raw: msgspec.Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError, ArithmeticError):
        return None


def _not_supported(param: str, kind: str, only: str) -> RequestRejected:
    message = f"{param}: type {kind[:40]!r} is not supported, {only}."
    return RequestRejected(message, code="unsupported_parameter", param=param)


def tool_use(body: ChatBody, fields: Mapping[str, msgspec.Raw]) -> ToolUse | None:
    """What tools the model is told of; None when there are none, or it shall call none.

    `fields` are those of `body` before they were decoded. Raises RequestRejected, naming the parameter.
    """
    if not body.tools:
        if body.tool_choice not in (None, "none", "auto"):
            raise invalid("tool_choice needs tools.", "tool_choice")
        return None
    _check(body.tools, len(memoryview(fields["tools"])))
    shown = as_shown(body.tools)
    if body.tool_choice == "none":
        return None
    several = body.parallel_tool_calls is not False and not isinstance(body.tool_choice, NamedTool)
    named = _named(body.tool_choice, [tool.function.name for tool in body.tools])
    if _may_decide(body.tool_choice):  # nothing but its ignorance keeps it from calling the others
        return ToolUse(tuple(tool for tool in shown if tool["function"]["name"] in named), several)
    return ToolUse(shown, several, named)


def as_shown(tools: Sequence[Tool]) -> tuple[dict[str, Any], ...]:
    """As a chat template takes them."""
    for index, tool in enumerate(tools):
        refuse_deeper(tool.function.parameters, f"tools[{index}].function.parameters")
    return tuple(msgspec.to_builtins(tool) for tool in tools)


def _check(tools: Sequence[Tool], size_bytes: int) -> None:
    if size_bytes > MOST_TOOLS_BYTES:
        raise invalid(f"tools have {size_bytes} bytes; at most {MOST_TOOLS_BYTES} are read.", "tools")
    name, times = Counter(tool.function.name for tool in tools).most_common(1)[0]
    if times > 1:
        raise invalid(f"tools: {times} functions have the name {name}.", "tools")


def _may_decide(choice: Choice) -> bool:
    """Whether the model may also call nothing."""
    if isinstance(choice, AllowedTools):
        return choice.allowed_tools.mode == "auto"
    return choice in (None, "auto")


def _named(choice: Choice, offered: Sequence[str]) -> tuple[str, ...]:
    """The functions that a choice is about, in the order of the offer. Raises RequestRejected for one that has none."""
    match choice:
        case NamedTool(function):
            chosen = {function.name}
        case AllowedTools(AllowedList(_, tools)):
            chosen = {tool.function.name for tool in tools}
        case _:
            chosen = set(offered)
    if unknown := sorted(chosen.difference(offered)):
        raise invalid(f"tool_choice: there is no tool {unknown[0]}.", "tool_choice")
    return tuple(name for name in offered if name in chosen)
