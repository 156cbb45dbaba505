"""The TOML file of `quiesce serve --config`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

from quiesce.doctor.documents import Document
from quiesce.doctor.fleet import Engine, Member, Placed
from quiesce.doctor.launches import Launch, Program, members_of
from quiesce.errors import UsageError


def read_toml(document: Document) -> list[Member]:
    """The members that `quiesce serve` would start with this file. Raises UsageError."""
    try:
        settings = tomllib.loads(document.text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UsageError(f"{document.name}: this is no TOML ({str(problem)[:80]}).") from None
    words = [word for name, value in settings.items() for word in _words(document.text, name, value)]
    return list(members_of(Launch(Program(Engine.QUIESCE, "", "serve"), words, {}, document.name, 0, document.name)))


def _words(text: str, name: str, value: object) -> Iterator[str]:
    """A setting as its flag."""
    line = next((i for i, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith(name)), 0)
    for each in value if isinstance(value, list) else [value]:
        flag = name.replace("_", "-")
        if isinstance(each, bool):
            yield Placed(f"--{flag}" if each else f"--no-{flag}", line)
        elif isinstance(each, (str, int, float)):
            yield Placed(f"--{flag}={each}", line)
