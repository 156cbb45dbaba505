"""Shell scripts, command lines, systemd units and files of variables: what they start, and with which environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from quiesce.doctor.documents import Document
from quiesce.doctor.fleet import Member, Placed, line_of
from quiesce.doctor.launches import (
    Launch,
    Program,
    find_program,
    guess_program,
    image_version,
    members_of,
    pinned_version,
)
from quiesce.doctor.shell import ARRAY, Lookup, commands, unknown
from quiesce.errors import UsageError

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_SOURCES = frozenset({"source", "."})
_FILE_FLAGS = ("--env-file",)


def read_command(document: Document) -> list[Member]:
    """Each launch in a script. Raises UsageError for quotes that never close."""
    script = _Script(document)
    return script.members()


def read_arguments(document: Document) -> list[Member]:
    """A command line, or flags alone, whose engine they give away. Raises UsageError."""
    found = read_command(document)
    if found:
        return found
    words = [word for command in commands(document.text, unknown) for word in command]
    split = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    environment = dict(_assignments(words[:split]))
    program = guess_program(words[split:])
    if program is None:
        raise UsageError(
            f"{document.name}: cannot tell whose flags these are.",
            remedy="Begin with the program: sglang serve, vllm serve or quiesce serve.",
        )
    launch = Launch(program, words[split:], environment, document.name, 1, document.name)
    return list(members_of(launch))


def read_environment(text: str) -> dict[str, str]:
    """A file of `NAME=value` lines."""
    return {name: value for command in commands(text, unknown) for name, value in _assignments(command)}


class _Script:
    """A script's variables while it is read, command by command."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._variables: dict[str, str] = {}
        self._exported: dict[str, str] = {}
        self._whole = True
        self._version: Placed | None = None

    def members(self) -> list[Member]:
        return [
            member for command in commands(self._document.text, self._variables.get) for member in self._one(command)
        ]

    def _one(self, words: Sequence[Placed]) -> Iterator[Member]:
        found = find_program(words)
        if found:
            yield from members_of(self._launch(words, *found))
        elif words[0] in _SOURCES:
            self._whole = False
        else:
            self._version = pinned_version(words) or self._version
            given = dict(_assignments(words))
            for name, value in given.items():
                self._assign(name, value)
            if words[0] in ("export", "declare"):
                names = [name for word in words[1:] if (name := word.partition("=")[0]) in self._variables]
                self._exported |= {name: self._variables[name] for name in names}

    def _assign(self, name: str, value: str) -> None:
        """`NAME=value`, and `NAME+=value`, which goes on with what there is."""
        bare = name.removesuffix("+")
        before = self._variables.get(bare, "") if name.endswith("+") else ""
        self._variables[bare] = Placed(before + ARRAY * (ARRAY in before) + value, line_of(value))
        if bare in self._exported:
            self._exported[bare] = self._variables[bare]

    def _launch(self, words: Sequence[Placed], program: Program, begin: int) -> Launch:
        before = words[:begin]
        image = next((version for word in before if (version := image_version(word))), None)
        whole = self._whole and not any(word.startswith(_FILE_FLAGS) for word in before)
        return Launch(
            program,
            words[begin:],
            self._exported | dict(_assignments(before)),
            self._document.name,
            line_of(words[0]),
            f"{self._document.name}:{line_of(words[0])}",
            image or self._version,
            whole,
            tuple(_published(before)),
        )


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`NAME=value` words, those after `-e` and `export` included; the first flag of another kind does not end them."""
    for word in words:
        bare = word.partition("=")[2] if word.startswith("--env=") else word
        if _ASSIGNMENT.match(bare):
            name, _equal, value = bare.partition("=")
            yield name, Placed(value, line_of(word))


def _published(words: Sequence[str]) -> Iterator[str]:
    """`docker run -p 8998:8998`."""
    for flag, value in pairwise(words):
        if flag in ("-p", "--publish"):
            yield value


_SETTING = re.compile(r"([A-Za-z]+)\s*=\s*(.*)")


def read_unit(document: Document) -> list[Member]:
    """The ExecStart of a systemd unit, with its Environment. What an EnvironmentFile holds is not known."""
    environment: dict[str, str] = {}
    whole = True
    starts: list[tuple[str, int]] = []
    for line, text in _logical_lines(document.text):
        match = _SETTING.fullmatch(text)
        if not match:
            continue
        name, value = match[1], match[2]
        if name == "Environment":
            environment |= dict(_assignments(_words(value, line)))
        elif name == "EnvironmentFile":
            whole = False
        elif name == "ExecStart":
            starts.append((value.lstrip("-@:+!"), line))
    return [
        member
        for value, line in starts
        for member in _started(document, _words(value, line, environment.get), environment, whole)
    ]


def _started(document: Document, words: list[Placed], environment: dict[str, str], whole: bool) -> Iterator[Member]:
    found = find_program(words)
    if not found and len(words) > 2 and words[1] in ("-c", "-lc"):  # /bin/sh -c '...'
        words = _words(words[2], line_of(words[2]))
        found = find_program(words)
    if found:
        program, begin = found
        given = environment | dict(_assignments(words[:begin]))
        place = (document.name, line_of(words[0]), f"{document.name}:{line_of(words[0])}")
        image = next((version for word in words[:begin] if (version := image_version(word))), None)
        yield from members_of(Launch(program, words[begin:], given, *place, image, whole))


def _words(text: str, line: int, lookup: Lookup = unknown) -> list[Placed]:
    return [word for command in commands(text, lookup, line) for word in command]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that they go on in, after a backslash; comments left out."""
    began = 0
    parts: list[str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not parts:
            if line.startswith(("#", ";")):
                continue
            began = number
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield began, " ".join(parts)
            parts = []
    if parts:
        yield began, " ".join(parts)
