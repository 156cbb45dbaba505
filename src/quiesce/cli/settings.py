"""Composition: flag > QUIESCE_ variable > TOML file > default. Every problem is found before one error is raised."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from quiesce.cli.fields import Kind, Setting, Slice, bounded, from_file, from_text, is_blank, settings_of
from quiesce.errors import ConfigurationError

S = TypeVar("S", bound=msgspec.Struct)

# Variables that begin with QUIESCE_ and are no settings of a command.
OTHER_VARIABLES = frozenset({"QUIESCE_CONFIG", "QUIESCE_CACHE"})


class Composed:
    """What was said, by field name, after all sources were laid over each other; defaults are not in it."""

    def __init__(self, values: dict[str, object], problems: list[str], settings: dict[str, Setting]) -> None:
        self.values = values
        self.problems = problems
        self.settings = settings

    def get(self, name: str) -> object:
        """What was said for `name`, else its default."""
        return self.values.get(name, self.settings[name].default)

    def build(self, struct: type[S], **fixed: object) -> S:
        """The room's settings, `fixed` laid over them. Raises `ConfigurationError` with every problem found so far."""
        names = {field.name for field in msgspec.structs.fields(struct)}
        values = {name: value for name, value in self.values.items() if name in names} | fixed
        problems = self.problems + self._missing(struct, values)
        if problems:
            raise ConfigurationError(problems)
        try:
            return struct(**values)  # each value is within its own bounds; this runs the room's checks across fields
        except ValueError as problem:
            raise ConfigurationError([str(problem)]) from None

    def _missing(self, struct: type[msgspec.Struct], values: dict[str, object]) -> list[str]:
        lacking = [s for s in settings_of([Slice(struct)]).values() if s.required and s.name not in values]
        # A required field with an unreadable value has its own problem already.
        return [f"{s.flag} is needed: {s.description}" for s in lacking if not self._blamed(s)]

    def _blamed(self, setting: Setting) -> bool:
        names = (setting.flag, setting.variable, f": {setting.key} = ", f": {setting.name} = ")
        return any(name in problem for problem in self.problems for name in names)


def compose(
    slices: Sequence[Slice],
    flags: Mapping[str, object],
    *,
    environ: Mapping[str, str] = os.environ,
    config: str | None = None,
    known: Collection[str] = (),
) -> Composed:
    """Lay the sources over each other.

    `flags` maps field names to text, booleans or lists of text; None means not given. `known` are field names of
    other commands, which a shared file or environment may hold. Problems are collected, not raised: `build` does.
    """
    settings = settings_of(slices)
    reading = _Reading(settings)
    names = set(known) | set(settings)
    file = config or environ.get("QUIESCE_CONFIG")
    for key, value in _read_file(file, reading.problems).items():
        name = key.replace("-", "_")
        if name not in names or isinstance(value, dict):
            reading.problems.append(f"{file}: {_unusable(key, value, names)}")
        else:
            reading.take(name, value, f"{file}: {key}", from_file)
    for name, setting in settings.items():
        if setting.variable in environ:
            reading.take(name, environ[setting.variable], setting.variable, from_text)
    for name, value in flags.items():
        if value is not None and value != ():
            reading.take(name, value, f"--{name.replace('_', '-')}", _from_flag)
    reading.problems.extend(_strangers(environ, names))
    return Composed(reading.values, reading.problems, settings)


def write_file(path: Path, values: Mapping[str, object]) -> None:
    """A TOML file that says `values` (text, numbers, booleans, sequences of text; None is left out)."""
    said = {name: value for name, value in values.items() if value is not None}
    # JSON's scalars and arrays of them are TOML too, once nothing beyond ASCII is escaped as a surrogate pair.
    lines = [f"{name.replace('_', '-')} = {json.dumps(value, ensure_ascii=False)}" for name, value in said.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class _Reading:
    """Values and problems while the sources are read, the weakest first."""

    def __init__(self, settings: dict[str, Setting]) -> None:
        self.settings = settings
        self.values: dict[str, object] = {}
        self.problems: list[str] = []

    def take(self, name: str, value: object, origin: str, read: Callable[[Setting, Any], object]) -> None:
        setting = self.settings.get(name)
        if setting is None:
            return
        try:
            said = read(setting, value)
            if is_blank(setting, said):
                self.problems.append(_blank(setting, origin))
                return
            self.values[name] = bounded(setting, said)
        except ValueError as problem:
            shown = "..." if setting.secret else _shown(value)
            self.problems.append(f"{origin} = {shown}: {problem}{_hint(setting, value)}")


def _from_flag(setting: Setting, value: str | Sequence[str] | bool) -> object:
    return value if isinstance(value, bool) else from_text(setting, value)


def _read_file(path: str | None, problems: list[str]) -> dict[str, object]:
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        problems.append(f"--config {path}: {problem.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        problems.append(f"--config {path}: {problem}")
    return {}


def _unusable(key: str, value: object, names: Collection[str]) -> str:
    """Why a key of the file is no setting."""
    if isinstance(value, dict):
        return f"[{key}]: this file has no tables: write the keys at the top level"
    close = difflib.get_close_matches(key.replace("-", "_"), names, n=1)
    meant = f"; did you mean {close[0].replace('_', '-')}?" if close else ""
    return f"{key}: no such setting{meant}"


def _strangers(environ: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Variables that look like a misspelt setting. Others are let be: orchestrators add their own QUIESCE_ names."""
    known = {f"QUIESCE_{name.upper()}" for name in names} | OTHER_VARIABLES
    problems = []
    for variable in sorted(v for v in environ if v.startswith("QUIESCE_") and v not in known):
        close = difflib.get_close_matches(variable, known, n=1, cutoff=0.9)
        if close:
            problems.append(f"{variable}: no such setting; did you mean {close[0]}?")
    return problems


def _blank(setting: Setting, origin: str) -> str:
    where = "" if origin == setting.flag else f" ({origin})"
    return f"{setting.flag} is empty; {setting.secret}{where}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _hint(setting: Setting, value: object) -> str:
    """Kubernetes sets QUIESCE_PORT=tcp://... in every pod beside a service that is named quiesce."""
    kubernetes = setting.kind is Kind.NUMBER and str(value).startswith("tcp://")
    return " (Kubernetes sets this for a service of that name; use enableServiceLinks: false)" if kubernetes else ""
