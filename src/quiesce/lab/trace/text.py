"""The canonical text of `quiesce.protocol.trace`, read again: facts, effects, messages, leases.

What is read is no `Peer` or `Publish` again: lines show eight digits of a life, and hide what users said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

HIDDEN = "*"

_MESSAGE = re.compile(r"(\d+@\w+)->(\d+@\w+)#(\d+) ([a-z_]+)\(")
_OPEN = re.compile(r" open<(\d+)\[([\d.,]*)\]")
_LEASE = re.compile(r"Lease\((\d+) pages (.*?) tag ([0-9a-f]+) slot (\d+)\)")
_SPAN = re.compile(r"\[(\d+)(?:\.\.(\d+))?\]")
_NODE = re.compile(r"([A-Z]\w*)\(")
_FIELD = re.compile(r"([a-z_]\w*)=")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORD = re.compile(r"[^\s()\[\]=,;'\"]+")


class UnreadableError(ValueError):
    """The text is not what `quiesce.protocol.trace` writes; `at` is where it stops to be."""

    def __init__(self, at: int) -> None:
        super().__init__(f"unreadable from column {at + 1} on")
        self.at = at


@dataclass(frozen=True)
class Node:
    """A fact or an effect: `Release(attempt=1, ...)`. Fields that have their default value are not there."""

    name: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.fields.get(name, default)


@dataclass(frozen=True)
class Lease:
    """`held` has the numbers of its pages, or is None where the line shows a digest of them."""

    pages: int
    tag: str
    held: frozenset[int] | None


@dataclass(frozen=True)
class Told:
    """What a message of decode said of its open attempts."""

    watermark: int
    below: frozenset[int]

    def is_closed(self, attempt: int) -> bool:
        return attempt < self.watermark and attempt not in self.below


@dataclass(frozen=True)
class Message:
    """An envelope. Two messages are equal when their texts are. `key` is how prefill knows the attempt."""

    text: str
    sender: str = field(compare=False)
    to: str = field(compare=False)
    attempt: int = field(compare=False)
    kind: str = field(compare=False)
    fields: Mapping[str, Any] = field(compare=False)
    open: Told | None = field(compare=False)

    def key_at(self, decode: str) -> str:
        return f"{decode}#{self.attempt}"


def life_of(peer: str) -> str:
    """`0@dddddddd` is rank 0 of the life `dddddddd`."""
    return peer.partition("@")[2]


def rank_of(peer: str) -> int:
    return int(peer.partition("@")[0])


def split_key(key: str) -> tuple[str, int]:
    """`0@dddddddd#7`: whose attempt, and its number."""
    decode, _, number = key.partition("#")
    return decode, int(number)


def step_of(text: str) -> tuple[Node, tuple[Node, ...]]:
    """`Fact(...) -> Effect(...); Effect(...)`. Raises Unreadable."""
    return _Reader(text).step()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def step(self) -> tuple[Node, tuple[Node, ...]]:
        fact = self._node()
        self._skip(" -> ")
        effects: list[Node] = []
        if self._text[self._at :] == "nothing":
            return fact, ()
        while True:
            effects.append(self._node())
            if self._at == len(self._text):
                return fact, tuple(effects)
            self._skip("; ")

    # ------------------------------------------------------------ small steps

    def _skip(self, literal: str) -> None:
        if not self._text.startswith(literal, self._at):
            raise UnreadableError(self._at)
        self._at += len(literal)

    def _try(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _must(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = self._try(pattern)
        if found is None:
            raise UnreadableError(self._at)
        return found

    # ------------------------------------------------------------ values

    def _node(self) -> Node:
        name = self._must(_NODE).group(1)
        return Node(name, self._fields())

    def _fields(self) -> dict[str, Any]:
        """Up to and with the closing bracket."""
        fields: dict[str, Any] = {}
        while not self._text.startswith(")", self._at):
            if fields:
                self._skip(", ")
            name = self._must(_FIELD).group(1)
            fields[name] = self._value()
        self._skip(")")
        return fields

    def _value(self) -> Any:
        for pattern, read in self._ways():
            begin, found = self._at, self._try(pattern)
            if found is not None:
                return read(begin, found)
        if self._text.startswith("(", self._at):
            return self._tuple()
        raise UnreadableError(self._at)

    def _ways(self) -> tuple[tuple[re.Pattern[str], Callable[[int, re.Match[str]], Any]], ...]:
        return (
            (_LEASE, lambda _, found: _lease(found)),
            (_NODE, lambda _, found: Node(found.group(1), self._fields())),
            (_MESSAGE, self._message),
            (_QUOTED, lambda _, found: found.group()),
            (_WORD, lambda _, found: int(found.group()) if found.group().isdigit() else found.group()),
        )

    def _tuple(self) -> tuple[Any, ...]:
        self._skip("(")
        items: list[Any] = []
        while not self._text.startswith(")", self._at):
            if items:
                self._skip(" ")
            items.append(self._value())
        self._skip(")")
        return tuple(items)

    def _message(self, begin: int, found: re.Match[str]) -> Message:
        sender, to, attempt, kind = found.groups()
        fields = self._fields()
        said = self._try(_OPEN)
        told = None if said is None else Told(int(said.group(1)), frozenset(_numbers(said.group(2))))
        return Message(self._text[begin : self._at], sender, to, int(attempt), kind, fields, told)


def _numbers(text: str) -> list[int]:
    """`1..4,7`."""
    spans = [span.partition("..") for span in text.split(",") if span]
    return [number for first, _, last in spans for number in range(int(first), int(last or first) + 1)]


def _lease(found: re.Match[str]) -> Lease:
    pages, runs, tag, _ = found.groups()
    spans = _SPAN.findall(runs)
    held = {page for first, last in spans for page in range(int(first), int(last or first) + 1)}
    known = frozenset(held) if spans or runs == "0x" else None
    return Lease(int(pages), tag, known)
