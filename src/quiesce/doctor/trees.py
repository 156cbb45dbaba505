"""YAML as trees of text with lines, made from a parser's events. No tag makes an object; every size is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from quiesce.doctor.documents import Document
from quiesce.doctor.fleet import Placed
from quiesce.errors import UsageError

MOST_NODES = 50_000
"""Once every alias is followed: a page of text can stand for more than a memory holds."""
MOST_DEPTH = 60

Tree = Any
"""A Placed, a list of trees, or a dict from text to tree."""

_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same events, 20 times as fast where libyaml is there


def trees_of(document: Document) -> list[Tree]:
    """Each document of a YAML stream. Raises UsageError."""
    builder = _Builder(document.name)
    try:
        for event in yaml.parse(document.text, _Parser):
            builder.take(event)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{document.name}{where}: this is no YAML.") from None
    return builder.trees


class _Open:
    """A map or a list that is not complete yet; of a map, values follow their keys."""

    def __init__(self, is_map: bool, anchor: str | None) -> None:
        self.is_map, self.anchor = is_map, anchor
        self.parts: list[Tree] = []
        self.size = 1

    def tree(self) -> Tree:
        if not self.is_map:
            return self.parts
        pairs = list(zip(self.parts[::2], self.parts[1::2], strict=True))
        own = {key: value for key, value in pairs if isinstance(key, str) and key != "<<"}
        return {**dict(item for key, value in pairs if key == "<<" for item in _merged(value)), **own}


def _merged(value: Tree) -> Iterator[tuple[str, Tree]]:
    """What `<<` brings in: of several maps the first counts most."""
    for part in reversed(value) if isinstance(value, list) else [value]:
        if isinstance(part, dict):
            yield from part.items()


class _Builder:
    """Trees while events arrive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.trees: list[Tree] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Tree, int]] = {}

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchors = {}
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._begin(_Open(isinstance(event, yaml.MappingStartEvent), event.anchor))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            done = self._open.pop()
            self._put(done.tree(), done.size, done.anchor)
        elif isinstance(event, yaml.ScalarEvent):
            self._put(_scalar(event), 1, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._follow(event)

    def _begin(self, container: _Open) -> None:
        if len(self._open) >= MOST_DEPTH:
            raise UsageError(f"{self._name}: nested too deeply; it is not examined.")
        self._open.append(container)

    def _follow(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise UsageError(f"{self._name}:{event.start_mark.line + 1}: this is no YAML.")
        tree, size = self._anchors[event.anchor]
        self._put(tree, size, None)

    def _put(self, tree: Tree, size: int, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = (tree, size)
        if not self._open:
            self.trees.append(tree)
            return
        self._open[-1].parts.append(tree)
        self._open[-1].size += size
        if self._open[-1].size > MOST_NODES:
            raise UsageError(f"{self._name}: more than {MOST_NODES} nodes, aliases followed; it is not examined.")


def _scalar(event: yaml.ScalarEvent) -> Placed:
    """The text as it is written; nothing for null. The text of a block begins on the line after its mark."""
    empty = event.style is None and event.value in ("", "~", "null", "Null", "NULL")
    return Placed("" if empty else event.value, event.start_mark.line + (2 if event.style in ("|", ">") else 1))
