"""Calls of tools in what a model says: the formats they are written in, and reading them while they come.

A format is known by what the model's chat template says of it. What looks like a call and is none stays text.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Collection

import msgspec

from quiesce.text.json_extent import JsonExtent

_ALPHANUMERIC = string.ascii_letters + string.digits
_SHORT_ID_CHARACTERS = 9


class CallPart(msgspec.Struct, frozen=True):
    """Some of a call, which its first part `name`s. `arguments` are the next of their text, as the model wrote it.

    `ends`: all of them were said, and are a JSON object. A call whose arguments turn out to be none never ends.
    """

    name: str = ""
    arguments: str = ""
    ends: bool = False


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

    Text that may still become a call is held back. It is one as soon as a function's name and the beginning of its
    arguments were said, in this order; from then on these come as they are said, JSON or not, to where their brackets
    or a tag end them. What has another shape is a call when its object is complete, and what calls somebody unknown or
    is no JSON comes out as the text it is. White space before a call and the tag behind it are no text. `nothing_else`:
    the answer is calls, so what is held at its end is a torn one.
    """

    def __init__(self, form: CallFormat, names: Collection[str], *, nothing_else: bool = False) -> None:
        self._form = form
        self._names = frozenset(names)
        self._nothing_else = nothing_else
        self._parts: list[str | CallPart] = []
        self._shown: list[str] = []
        self._held: list[str] = []
        self._arguments: list[str] = []
        self._settled = 0  # how many of these are in a part
        self._object = 0  # where in `_held` a call's object begins
        self._tag = ""  # as much of a tag as `_held` ends with
        self._called = False  # a call was the last thing that was read
        self._owed = False  # a call has begun, and the tag behind it is still to come
        self._announced = False  # a tag, or a call before it, says that one follows
        self._hopeful = True  # a bare format may still see a call
        self._extent = JsonExtent()
        self._take: Callable[[str], None] = self._outside
        self.torn = False
        """Whether the answer ended before a call that was announced said what it calls."""

    def push(self, text: str) -> list[str | CallPart]:
        """Take the next piece; return what is certain now. Neighbouring texts are one."""
        for character in text:
            self._take(character)
        return self._drained()

    def flush(self) -> list[str | CallPart]:
        """The answer is over. What was held is text, unless it is the rest of a call or the beginning of one."""
        rest = self._take in (self._rest_of_object, self._after_object) or self._is_end()
        space = "".join(self._held).isspace()
        self.torn = bool(self._held) and not (rest or space) and (self._announced or self._nothing_else)
        if self.torn or rest or (space and self._called) or self._nothing_else:
            self._held.clear()
        self._release()
        return self._drained()

    # ------------------------------------------------------------ where a character stands

    def _outside(self, character: str) -> None:
        if not self._hopeful:
            self._show(character)
        elif self._is_of_tag(character):
            self._more_of_tag(character)
        elif self._tag:
            self._give_up(character)
        elif character.isspace() or (self._called and self._form.bare and character == ";"):
            self._held.append(character)
        elif self._form.bare and character == self._form.opening:
            self._announced = self._called
            self._before_object(character)
        else:
            self._hopeful = not self._form.bare
            self._release()
            self._show(character)

    def _before_list(self, character: str) -> None:
        if character == "[":
            self._take = self._before_object
        elif not character.isspace():
            self._give_up(character)
            return
        self._held.append(character)

    def _before_object(self, character: str) -> None:
        if character.isspace():
            self._held.append(character)
        elif character == "{":
            self._object, self._extent, self._take = len(self._held), JsonExtent(), self._in_object
            self._in_object(character)
        else:
            self._give_up(character)

    def _in_object(self, character: str) -> None:
        """Of the brackets in it only the first can be where arguments begin that follow a name."""
        is_first = self._extent.depth == self._extent.deepest == 1
        if not self._extent.take(character):
            self._give_up(character)
            return
        self._held.append(character)
        if self._extent.complete:
            self._close()
        elif is_first and self._extent.depth > 1:
            self._begin_arguments()

    def _in_arguments(self, character: str) -> None:
        if self._extent.may_come(character):
            self._argue(character)
        else:
            self._take = self._in_no_json
            self._in_no_json(character)

    def _in_no_json(self, character: str) -> None:
        """Arguments that are no JSON. Their quotes may be no strings', so a tag is one wherever it stands."""
        if self._tag and not self._is_of_tag(character):
            mistaken, self._tag = self._tag, ""
            self._held.clear()
            self._argue(mistaken)
        if self._is_of_tag(character):
            self._settle()
            self._more_of_tag(character)
        else:
            self._argue(character)

    def _rest_of_object(self, character: str) -> None:
        """Behind the arguments. All that matters has been said, so a missing bracket does not."""
        if self._extent.take(character):
            self._held.append(character)
            if self._extent.complete:
                self._object_over()
        else:
            self._leave(character)

    def _after_object(self, character: str) -> None:
        if self._form.opening == "[" and character == "]":
            self._over()
        elif self._form.opening == "[" and character == ",":
            self._held.append(character)
            self._take = self._before_object
        elif character.isspace() or character == "}":  # a bracket too many is no loss
            self._held.append(character)
        else:
            self._leave(character)

    # ------------------------------------------------------------ what becomes of it

    def _is_of_tag(self, character: str) -> bool:
        """Whether it goes on with a tag, or begins one."""
        tag = self._tag + character
        return self._form.begins.startswith(tag) or (self._owed and self._form.ends.startswith(tag))

    def _is_end(self) -> bool:
        """Whether some of the tag behind a call is held. One character of it may be any text's, but not there."""
        held = len(self._tag) > (0 if self._called else 1)
        return held and self._owed and self._form.ends.startswith(self._tag)

    def _more_of_tag(self, character: str) -> None:
        self._held.append(character)
        self._tag += character
        if self._tag == self._form.begins:
            self._tag, self._owed, self._announced = "", False, True
            self._take = self._before_list if self._form.opening == "[" else self._before_object
        elif self._tag == self._form.ends:
            self._owed = False
            self._over()

    def _begin_arguments(self) -> None:
        head = _HEAD.fullmatch("".join(self._held[self._object :]))
        if head and head[1] in self._names:
            self._settle()
            self._parts.append(CallPart(head[1]))
            self._held.clear()
            self._called = self._owed = True
            self._arguments, self._settled, self._take = ["{"], 0, self._in_arguments

    def _argue(self, text: str) -> None:
        """More of the arguments; their last bracket may be in it."""
        for character in text:
            self._extent.take(character)
        self._arguments.append(text)
        if self._extent.depth == 1:
            self._settle()
            if _is_object("".join(self._arguments)):
                self._parts.append(CallPart(ends=True))
            self._take = self._rest_of_object

    def _close(self) -> None:
        """An object is complete that did not begin as calls do."""
        call = _call("".join(self._held[self._object :]), self._names)
        if call is None:
            self._hopeful = not self._form.bare
            self._release()
            self._over()
        else:
            self._settle()
            self._parts.append(call)
            self._called = self._owed = True
            self._object_over()

    def _object_over(self) -> None:
        self._held.clear()
        if self._form.ends or self._form.opening == "[":
            self._take = self._after_object
        else:
            self._over()

    def _over(self) -> None:
        """What comes next is no part of a call."""
        self._held.clear()
        self._take, self._tag, self._announced = self._outside, "", False

    def _leave(self, character: str) -> None:
        """`character` stands behind a call; the tag of the next one may, as an end is easily forgotten."""
        self._take, self._announced = self._outside, False
        self._outside(character)

    def _give_up(self, character: str) -> None:
        """It is no call after all. `character` may begin another one."""
        self._hopeful = not self._form.bare
        self._release()
        self._over()
        self._outside(character)

    def _release(self) -> None:
        if self._held:
            self._show("".join(self._held))
            self._held.clear()

    def _show(self, text: str) -> None:
        self._shown.append(text)
        self._called = False

    def _settle(self) -> None:
        """Neither text nor arguments go on behind what comes now."""
        if self._shown:
            self._parts.append("".join(self._shown))
            self._shown.clear()
        if self._settled < len(self._arguments):
            self._parts.append(CallPart(arguments="".join(self._arguments[self._settled :])))
            self._settled = len(self._arguments)

    def _drained(self) -> list[str | CallPart]:
        self._settle()
        parts, self._parts = self._parts, []
        return parts


_HEAD = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*\{')
"""How nearly all calls begin; their arguments follow."""


class _Written(msgspec.Struct, frozen=True):
    """A call as models write it; Llama says parameters."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    parameters: msgspec.Raw = msgspec.Raw(b"")


def _call(body: str, names: frozenset[str]) -> CallPart | None:
    """The whole call that a JSON object is; None when it is none."""
    try:
        written = msgspec.json.decode(body, type=_Written)
        arguments = _arguments(written)
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return CallPart(written.name, arguments, ends=True) if written.name in names and _is_object(arguments) else None


def _arguments(written: _Written) -> str:
    """Some models put them in a string. Raises ValueError (msgspec's errors are such)."""
    raw = bytes(written.arguments) or bytes(written.parameters) or b"{}"
    text = raw.decode()
    return msgspec.json.decode(raw, type=str) if text.startswith('"') else text


def _is_object(text: str) -> bool:
    """Numbers may be of any size and any number of digits here: it is not us who count with them."""
    try:
        return isinstance(json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    """NaN and its like, which Python takes for JSON."""
    raise ValueError(constant)
