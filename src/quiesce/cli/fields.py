"""One setting as people meet it: a flag, a QUIESCE_ variable, a TOML key, read from a room's settings struct."""

from __future__ import annotations

import enum
import functools
import re
import types
import typing
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Meta

from quiesce.units import parse_bytes, parse_seconds


class Kind(enum.Enum):
    """How a setting is written. The value is what `--help` shows in its place."""

    SWITCH = ""
    NUMBER = "N"
    REAL = "X"
    SECONDS = "SECONDS"
    BYTES = "BYTES"
    CHOICE = "CHOICE"
    TEXT = "TEXT"
    LIST = "TEXT ..."


class Setting(msgspec.Struct, frozen=True):
    """`type` is the struct's annotation with its bounds; `choices` is not empty for `Kind.CHOICE` only.

    `secret`, when not empty, says what to do instead of giving a blank value; such values are never shown. `shape` says
    what a value must look like that has a pattern.
    """

    name: str
    type: typing.Any
    kind: Kind
    description: str
    default: typing.Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    secret: str = ""
    shape: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    @property
    def key(self) -> str:
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"QUIESCE_{self.name.upper()}"


class Slice(msgspec.Struct, frozen=True):
    """A room's settings as one command offers them: all fields of `struct` except those the command fills in."""

    struct: type[msgspec.Struct]
    without: frozenset[str] = frozenset()


def settings_of(slices: Iterable[Slice]) -> dict[str, Setting]:
    """Settings by field name. Where two rooms share a name, the first room's words are shown; both bounds apply."""
    found: dict[str, Setting] = {}
    for part in slices:
        for field in msgspec.structs.fields(part.struct):
            if field.name not in part.without and field.name not in found:
                found[field.name] = _setting(field)
    return found


def from_text(setting: Setting, text: str | Sequence[str]) -> object:
    """What a flag or variable says, as a value of the setting's kind (bounds are checked later). Raises ValueError."""
    if setting.kind is Kind.LIST:
        parts = [part.strip() for part in (text.split(",") if isinstance(text, str) else text)]
        return tuple(part for part in parts if part or setting.secret)
    if not isinstance(text, str):
        raise ValueError("is given more than once")
    reader = _READERS.get(setting.kind)
    return reader(text.strip()) if reader else text


def bounded(setting: Setting, value: object) -> object:
    """`value` as the struct's type, within its bounds. Raises ValueError with a sentence for people."""
    try:
        return msgspec.convert(value, setting.type)
    except msgspec.ValidationError as problem:
        if setting.kind is Kind.CHOICE:
            raise ValueError(f"choose one of {', '.join(setting.choices)}") from None
        raise ValueError(_in_english(setting, str(problem))) from None


def is_blank(setting: Setting, value: object) -> bool:
    """Whether a secret, or one of several, is empty: a variable that was never filled in must not open a door."""
    values = value if isinstance(value, (tuple, list)) else [value]
    return bool(setting.secret) and any(isinstance(each, str) and not each.strip() for each in values)


def _in_english(setting: Setting, problem: str) -> str:
    """msgspec's "Expected `int` >= 1" as people say it."""
    if setting.shape and "matching regex" in problem:
        return f"must be {setting.shape}"
    if bound := re.search(r"` ?(of length )?(>=|<=|>|<) ([\d.e+-]+)", problem):
        number = bound[3].removesuffix(".0")
        comparison = _COMPARISONS[bound[2]]
        if bound[1]:
            return "must not be empty" if number == "1" else f"must have {comparison} {number} characters"
        return f"must be {comparison} {number}"
    return f"must be {_SORTS[setting.kind]}"


def from_file(setting: Setting, value: object) -> object:
    """A TOML value: durations and bytes may be text with a unit. Raises ValueError."""
    if isinstance(value, str) and setting.kind in (Kind.SECONDS, Kind.BYTES):
        return from_text(setting, value)
    return value


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    bare, metas, optional = _unwrap(field.type)
    kind = _kind(field.name, bare)
    return Setting(
        name=field.name,
        type=_bounded_type(bare, metas, optional),
        kind=kind,
        description=next((meta.description for meta in metas if meta.description), ""),
        default=None if field.required else field.default,
        required=field.required,
        choices=tuple(str(choice) for choice in typing.get_args(bare)) if kind is Kind.CHOICE else (),
        secret=_extra(metas, "secret"),
        shape=_extra(metas, "shape"),
    )


def _extra(metas: Iterable[Meta], name: str) -> str:
    return next((str(meta.extra[name]) for meta in metas if meta.extra and name in meta.extra), "")


def _unwrap(annotation: typing.Any) -> tuple[typing.Any, tuple[Meta, ...], bool]:
    """The type without Annotated and without `| None`, what Annotated said on the way, and whether None is allowed."""
    if typing.get_origin(annotation) is typing.Annotated:
        bare, metas, optional = _unwrap(typing.get_args(annotation)[0])
        return bare, (*annotation.__metadata__, *metas), optional
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = next(part for part in typing.get_args(annotation) if part is not type(None))
        bare, metas, _ = _unwrap(inner)
        return bare, metas, True
    return annotation, (), False


def _bounded_type(bare: typing.Any, metas: tuple[Meta, ...], optional: bool) -> typing.Any:
    """Bounds belong to the type inside `| None`: msgspec refuses `Annotated[int | None, Meta(ge=1)]`."""
    inner = functools.reduce(lambda kind, meta: typing.Annotated[kind, meta], metas, bare)
    return inner | None if optional else inner


def _kind(name: str, bare: typing.Any) -> Kind:
    if typing.get_origin(bare) is typing.Literal:
        return Kind.CHOICE
    if typing.get_origin(bare) in (tuple, list):
        return Kind.LIST
    if bare is float and name.endswith("_s"):
        return Kind.SECONDS
    if bare is int and name.endswith("_bytes"):
        return Kind.BYTES
    return {bool: Kind.SWITCH, int: Kind.NUMBER, float: Kind.REAL}.get(bare, Kind.TEXT)


def _number(text: str) -> int:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        raise ValueError("must be a whole number") from None


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _switch(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError("must be true or false")
    return words[text.lower()]


_COMPARISONS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_SORTS = {
    Kind.SWITCH: "true or false",
    Kind.NUMBER: "a whole number",
    Kind.REAL: "a number",
    Kind.SECONDS: "a duration, for example 30s or 500ms",
    Kind.BYTES: "a number of bytes, for example 512M or 4G",
    Kind.CHOICE: "one of the choices",
    Kind.TEXT: "text",
    Kind.LIST: "a list of texts",
}
_READERS: dict[Kind, typing.Callable[[str], object]] = {
    Kind.SWITCH: _switch,
    Kind.NUMBER: _number,
    Kind.REAL: _real,
    Kind.SECONDS: parse_seconds,
    Kind.BYTES: parse_bytes,
}
