"""The head of a scenario file: which world it is, a line for each thing that is not as usual."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from quiesce.errors import UsageError
from quiesce.lab.explorer.config import Config, Req, config

WORDS = ("scenario", "rule", "without")
FLAGS = {"yes": True, "no": False}
APART = {"requests", "arrivals", "budget", "heal", "limit"}
"""Fields of Config that have a line of their own form, or are about searching and not about the world."""

_USUAL = Config()
_REQUEST = re.compile(r"(\w+) in room (\d+) asks (\w+)")
_ARRIVAL = re.compile(r"(\w+) at prefill (\d+)")
_FAULT = re.compile(r"(\w+) (\d+)")


def config_lines(world: Config) -> list[str]:
    """The head's lines about a world; what is as usual is left out."""
    lines = [f"requests: {', '.join(f'{r.name} in room {r.room} asks {r.prompt}' for r in world.requests)}"]
    if world.arrivals is not None:
        arrivals = ", ".join(f"{req.name} at prefill {k}" for k, req in world.arrivals)
        lines.append(f"arrivals: {arrivals or 'none'}")
    for name in _plain():
        value = getattr(world, name)
        if value != getattr(_USUAL, name):
            lines.append(f"{name}: {_shown(value)}")
    if world.budget:
        lines.append(f"faults: {', '.join(f'{name} {times}' for name, times in world.budget)}")
    return lines


def _plain() -> list[str]:
    return [each.name for each in fields(Config) if each.name not in APART]


def _shown(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def read_config(lines: list[str], path: str) -> tuple[dict[str, str], Config]:
    """The head's words and its world. Raises UsageError that names the line."""
    said: dict[str, str] = {}
    given: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = (part.strip() for part in line.partition(":"))
        where = f"{path}:{number}"
        if not colon or not value:
            raise UsageError(f"{where}: the head has lines like 'pages: 2', up to the first empty line.")
        if name in WORDS:
            said[name] = value
        elif name == "requests":
            given[name] = tuple(Req(m[1], int(m[2]), m[3]) for m in _each(_REQUEST, value, where))
        elif name == "arrivals":
            given[name] = _arrivals(value, given.get("requests", _USUAL.requests), where)
        elif name == "faults":
            given |= {m[1]: int(m[2]) for m in _each(_FAULT, value, where)}
        else:
            given[name] = _plain_value(name, value, where)
    return said, config(**given)


def _each(form: re.Pattern[str], value: str, where: str) -> list[re.Match[str]]:
    found = [form.fullmatch(part.strip()) for part in value.split(",")]
    if None in found:
        raise UsageError(f"{where}: cannot read '{value}'; each part has the form {form.pattern!r}.")
    return [match for match in found if match is not None]


def _arrivals(value: str, requests: tuple[Req, ...], where: str) -> tuple[tuple[int, Req], ...]:
    named = {each.name: each for each in requests}
    found = [] if value == "none" else _each(_ARRIVAL, value, where)
    if unknown := [match[1] for match in found if match[1] not in named]:
        raise UsageError(f"{where}: there is no request {unknown[0]}; name it in 'requests' above.")
    return tuple((int(match[2]), named[match[1]]) for match in found)


def _plain_value(name: str, value: str, where: str) -> Any:
    if name not in _plain():
        raise UsageError(f"{where}: nothing is called '{name}'; a head knows {', '.join((*WORDS, *_plain()))}, faults.")
    usual = getattr(_USUAL, name)
    if isinstance(usual, bool) and value in FLAGS:
        return FLAGS[value]
    if not isinstance(usual, bool) and value.isdigit():
        return int(value)
    raise UsageError(f"{where}: {name} is {'yes or no' if isinstance(usual, bool) else 'a number'}, not '{value}'.")
