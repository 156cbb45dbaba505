"""Calls of tools in what a model says: the formats they are written in, and reading them while they come.

A format is known by what the model's chat template says of it. What looks like a call and is none stays text.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Collection

import msgspec

from quiesce.text.json_extent import JsonExtent

_ALPHANUMERIC = string.ascii_letters + string.digits
_SHORT_ID_CHARACTERS = 9


class Call(msgspec.Struct, frozen=True):
    """A complete call. `arguments` is a JSON object, as the model wrote it."""

    name: str
    arguments: str


class CallFormat(msgspec.Struct, frozen=True, kw_only=True):
    """`begins` stands before a call's JSON, which opens with `opening`, and `ends` after it.

    The first characters of `begins` and `ends` are nowhere else in them. `arguments` is what it calls them. `bare`:
    nothing needs to stand before a call, but then nothing but calls is said. `short_ids`: the template insists on ids
    of nine letters and digits.
    """

    name: str
    begins: str
    opening: str = "{"
    ends: str = ""
    arguments: str = "arguments"
    bare: bool = False
    short_ids: bool = False

    def mint_id(self) -> str:
        """A fresh name for one call."""
        if self.short_ids:
            return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(_SHORT_ID_CHARACTERS))
        return f"call_{secrets.token_hex(12)}"


FORMATS = {
    each.name: each
    for each in (
        CallFormat(name="hermes", begins="<tool_call>", ends="</tool_call>"),
        CallFormat(name="mistral", begins="[TOOL_CALLS]", opening="[", short_ids=True),
        CallFormat(name="llama3_json", begins="<|python_tag|>", arguments="parameters", bare=True),
    )
}
"""By the names that `--tool-call-format` takes."""


def detect(template: str) -> CallFormat | None:
    """The format that a chat template teaches its model; None when it is none of ours."""
    if "<tool_call>" in template and "<function=" not in template:  # Qwen3-Coder has these tags around XML
        return FORMATS["hermes"]
    if "[TOOL_CALLS]" in template and "[ARGS]" not in template:
        return FORMATS["mistral"]
    if "<|start_header_id|>" in template and '"parameters"' in template:
        return FORMATS["llama3_json"]
    return None


class CallReader:
    """Splits what a model says into text and calls of the functions `names`, however it was split into pieces.

    Text that may still become a call is held back. White space before a call is left out, and after the last one. What
    is no JSON, has the wrong shape or calls somebody unknown comes out as the text it is.
    """

    def __init__(self, form: CallFormat, names: Collection[str]) -> None:
        self._form = form
        self._names = frozenset(names)
        self._parts: list[str | Call] = []
        self._shown: list[str] = []
        self._held: list[str] = []
        self._body = 0  # where in `_held` the JSON begins
        self._matched = 0  # how much of a tag `_held` ends with
        self._called = False  # a call was the last thing that was read
        self._hopeful = True  # a bare format may still see a call
        self._extent = JsonExtent()
        self._take: Callable[[str], None] = self._outside

    def push(self, text: str) -> list[str | Call]:
        """Take the next piece; return what is certain now. Neighbouring texts are one."""
        for character in text:
            self._take(character)
        return self._drained()

    def flush(self) -> list[str | Call]:
        """The answer is over: what lacks nothing but the closing tag is a call, all else that was held is text."""
        if self._take == self._after_body:
            self._close()
        if self._take == self._outside and self._called and "".join(self._held).isspace():
            self._held.clear()
        self._release()
        return self._drained()

    # ------------------------------------------------------------ where a character stands

    def _outside(self, character: str) -> None:
        if not self._hopeful:
            self._show(character)
        elif character == self._form.begins[self._matched]:
            self._tag(character, self._form.begins, self._before_body)
        elif self._matched == 0 and (character.isspace() or (self._called and self._form.bare and character == ";")):
            self._held.append(character)
        elif self._form.bare and self._matched == 0 and character == self._form.opening:
            self._before_body(character)
        elif self._matched:
            self._give_up(character)
        else:
            self._hopeful = not self._form.bare
            self._release()
            self._show(character)

    def _before_body(self, character: str) -> None:
        if character.isspace():
            self._held.append(character)
        elif character == self._form.opening:
            self._body, self._extent, self._take = len(self._held), JsonExtent(), self._in_body
            self._in_body(character)
        else:
            self._give_up(character)

    def _in_body(self, character: str) -> None:
        if not self._extent.take(character):
            self._give_up(character)
            return
        self._held.append(character)
        if self._extent.complete:
            self._take = self._after_body
            if not self._form.ends:
                self._close()

    def _after_body(self, character: str) -> None:
        if character == self._form.ends[self._matched]:
            self._tag(character, self._form.ends, None)
        elif self._matched == 0 and character.isspace():
            self._held.append(character)
        else:
            self._give_up(character)

    # ------------------------------------------------------------ what becomes of it

    def _tag(self, character: str, tag: str, then: Callable[[str], None] | None) -> None:
        """One more character of a tag; behind its last one `then` takes over, or the call is closed."""
        self._held.append(character)
        self._matched = (self._matched + 1) % len(tag)
        if self._matched == 0:
            if then is None:
                self._close()
            else:
                self._take = then

    def _close(self) -> None:
        body = self._held[self._body : self._body + self._extent.length]
        calls = _calls("".join(body), self._names)
        if calls is None:
            self._hopeful = not self._form.bare
            self._release()
        else:
            self._settle()
            self._parts += calls
            self._held.clear()
            self._called = True
        self._take, self._matched = self._outside, 0

    def _give_up(self, character: str) -> None:
        """It is no call after all. `character` may begin another one."""
        self._hopeful = not self._form.bare
        self._release()
        self._take, self._matched = self._outside, 0
        self._outside(character)

    def _release(self) -> None:
        if self._held:
            self._show("".join(self._held))
            self._held.clear()

    def _show(self, text: str) -> None:
        self._shown.append(text)
        self._called = False

    def _settle(self) -> None:
        if self._shown:
            self._parts.append("".join(self._shown))
            self._shown.clear()

    def _drained(self) -> list[str | Call]:
        self._settle()
        parts, self._parts = self._parts, []
        return parts


class _Written(msgspec.Struct, frozen=True):
    """A call as models write it; Llama says parameters."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    parameters: msgspec.Raw = msgspec.Raw(b"")


def _calls(body: str, names: frozenset[str]) -> list[Call] | None:
    """All calls in a JSON object or list; None when there is none, or any is not one."""
    try:
        written = msgspec.json.decode(body, type=list[_Written] if body.startswith("[") else _Written)
        several = written if isinstance(written, list) else [written]
        calls = [Call(each.name, _arguments(each)) for each in several]
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return calls if calls and all(call.name in names for call in calls) else None


def _arguments(written: _Written) -> str:
    """A JSON object; some models put it in a string. Raises ValueError (msgspec's errors are such).

    Numbers may be of any size here: it is not us who count with them.
    """
    raw = bytes(written.arguments) or bytes(written.parameters) or b"{}"
    text = raw.decode()
    if text.startswith('"'):
        text = msgspec.json.decode(raw, type=str)
    if not isinstance(json.loads(text), dict):
        raise ValueError("arguments are an object")
    return text
