"""A failing run as a text file that a stranger can read, and that replays to the same violation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from quiesce.errors import UsageError
from quiesce.lab.swarm.faults import Fault
from quiesce.lab.swarm.parameters import Parameters
from quiesce.lab.swarm.run import Outcome, Plan
from quiesce.lab.swarm.workload import Ask

FIRST = "swarm: "
LINES, WIDTH = 160, 320
INDENT = "    "
_FAULT = re.compile(r"at (\S+) s (.+?) (prefill \d+|decode \d+)(?: from (prefill \d+|decode \d+))? for (\S+) s")
_NAMES = """\
A life of a worker is p0, d1, ... (prefill 0, decode 1), its later ones p0', p0''; "0@p0" is its rank 0, "0@d1#7" that
rank's part of its attempt 7, "17.2" the second try of request 17.
"""


class Story(msgspec.Struct, frozen=True):
    """What a file says: a plan, the mutant it runs under ("" is none) and what comes of it."""

    plan: Plan
    mutant: str
    violation: str


def is_story(first_line: str) -> bool:
    return first_line.startswith(FIRST)


# ---------------------------------------------------------------- writing


def written(plan: Plan, outcome: Outcome, mutant: str, remark: str) -> str:
    """The file's text."""
    head = [f"{FIRST}{outcome.violation} is broken, seed {outcome.seed}"]
    head += [f"without: {mutant}"] if mutant else []
    head += [f"violation: {outcome.violation}", f"seconds: {plan.seconds!r}"]
    told = sorted(plan.told) if plan.told is not None else ["drawn: by the rates among the parameters"]
    sections = [
        ("parameters", [f"{name}: {_said(value)}" for name, value in _fields(plan.parameters)]),
        ("requests", [_ask_line(ask) for ask in plan.asks]),
        ("faults", [str(fault) for fault in plan.faults]),
        ("messages and writes", told),
        ("what happens", _told(outcome)),
    ]
    prose = f"{outcome.detail[0].upper()}{outcome.detail[1:]}, at {outcome.at_s:.6f} s.\n{remark}\n{_NAMES}"
    return "\n".join(head) + "\n\n" + prose + "".join(_section(*section) for section in sections)


def _fields(value: msgspec.Struct) -> list[tuple[str, Any]]:
    return [(name, getattr(value, name)) for name in value.__struct_fields__]


def _said(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _section(title: str, lines: list[str]) -> str:
    return f"\n{title}:\n" + "".join(f"{INDENT}{line}\n" for line in lines or ["none"])


def _ask_line(ask: Ask) -> str:
    said = [f"prompt {ask.prompt}", f"blocks {' '.join(map(str, ask.blocks))}", f"answer {ask.answer}"]
    said += [] if ask.most is None else [f"most {ask.most}"]
    said += [f"tenant {ask.tenant}", f"priority {ask.priority}"]
    said += [] if ask.leaves_s is None else [f"leaves after {ask.leaves_s!r} s"]
    said += [] if ask.timeout_s is None else [f"timeout {ask.timeout_s!r} s"]
    return f"request {ask.number} at {ask.at_s!r} s: {', '.join(said)}"


def _told(outcome: Outcome) -> list[str]:
    told = [line for line in outcome.story if not line.endswith("-> nothing")]
    lines = [line if len(line) <= WIDTH else line[:WIDTH] + " ..." for line in told[-LINES:]]
    return [*lines, f"{outcome.at_s:.6f} {outcome.violation} broken: {outcome.detail}"]


# ---------------------------------------------------------------- reading


def read(path: Path) -> Story:
    """What a file says. Raises UsageError for one that cannot be read, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not lines or not is_story(lines[0]):
        raise UsageError(f"{path} is no file of the simulator: its first line must begin with {FIRST!r}.")
    try:
        return _story(lines)
    except (KeyError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} does not say what a file of the simulator says: {error}") from None


def _story(lines: list[str]) -> Story:
    head = dict(line.split(": ", 1) for line in lines[: lines.index("")])
    sections = _sections(lines)
    told = sections["messages and writes"]
    drawn = bool(told) and told[0].startswith("drawn: ")
    plan = Plan(
        parameters=_parameters(sections["parameters"]),
        seconds=float(head["seconds"]),
        asks=tuple(map(_ask, sections["requests"])),
        faults=tuple(map(_fault, sections["faults"])),
        told=None if drawn else frozenset(told),
    )
    return Story(plan, head.get("without", ""), head["violation"])


def _sections(lines: list[str]) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    title = ""
    for line in lines:
        if line.startswith(INDENT) and title:
            sections[title].append(line.removeprefix(INDENT))
        elif line.endswith(":") and not line.startswith(" "):
            title = line[:-1]
            sections[title] = []
    return {title: [] if said == ["none"] else said for title, said in sections.items()}


def _parameters(lines: list[str]) -> Parameters:
    said = {name: {"yes": True, "no": False}.get(value, value) for name, value in _pairs(lines)}
    return msgspec.convert(said, Parameters, strict=False)


def _pairs(lines: list[str]) -> list[tuple[str, Any]]:
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


def _ask(line: str) -> Ask:
    begin, _, rest = line.partition(": ")
    _, number, _, at_s, _ = begin.split()
    said: dict[str, Any] = {"number": number, "at_s": at_s}
    for part in rest.split(", "):
        name, _, value = part.partition(" ")
        if name == "blocks":
            said[name] = value.split()
        elif name in ("leaves", "timeout"):
            said[f"{name}_s"] = value.removeprefix("after ").removesuffix(" s")
        else:
            said[name] = value
    return msgspec.convert(said, Ask, strict=False)


def _fault(line: str) -> Fault:
    found = _FAULT.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r} is no fault")
    at_s, what, worker, other, lasts_s = found.groups()
    return Fault(float(at_s), what, worker, other or "", float(lasts_s))
