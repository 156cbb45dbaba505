"""Scenario files: parsed and printed. `parse(print_(scenario)) == scenario`, for every scenario."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from quiesce.errors import UsageError
from quiesce.lab.explorer.config import Config
from quiesce.lab.scenario.header import config_lines, read_config

FIRST = "scenario: "
INDENT = "    "
COMMAND = "> "
_COURSE = re.compile(r"=== with the rule(?:, after (\d+) equal steps?)?")


@dataclass(frozen=True)
class Prose:
    """A paragraph; it is told, and changes nothing."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A command and what came of it. `line` is where the command stands in its file."""

    command: str
    outcome: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)


Item = Prose | Step


@dataclass(frozen=True)
class Course:
    """One way through the world. `same` steps of the first course come before its items."""

    items: tuple[Item, ...]
    same: int = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(item for item in self.items if isinstance(item, Step))


@dataclass(frozen=True)
class Scenario:
    """`without` names the mutant of the first course, "" when it runs the machines as shipped; `kept` is the second."""

    title: str
    config: Config
    course: Course
    kept: Course | None = None
    rule: str = ""
    without: str = ""


def is_scenario(first_line: str) -> bool:
    return first_line.startswith(FIRST)


# ---------------------------------------------------------------- print


def printed(scenario: Scenario) -> str:
    """The text of a file, with a newline at its end."""
    lines = [f"{FIRST}{scenario.title}"]
    lines += [f"rule: {scenario.rule}"] if scenario.rule else []
    lines += [f"without: {scenario.without}"] if scenario.without else []
    lines += config_lines(scenario.config)
    lines += _course_lines(scenario.course)
    if (kept := scenario.kept) is not None:
        same = f", after {kept.same} equal step{'s' * (kept.same != 1)}" if kept.same else ""
        lines += ["", f"=== with the rule{same}", *_course_lines(kept)]
    return "\n".join(lines) + "\n"


def _course_lines(course: Course) -> Iterator[str]:
    after_step = False
    for item in course.items:
        if isinstance(item, Prose):
            yield from ("", *item.lines)
        else:
            yield from (
                *([] if after_step else [""]),
                COMMAND + item.command,
                *(INDENT + line for line in item.outcome),
            )
        after_step = isinstance(item, Step)


def difference(recorded: Scenario, now: Scenario, name: str) -> str:
    """A unified diff; "" when they are equal. How a file is laid out does not matter."""
    old, new = (printed(each).splitlines(keepends=True) for each in (recorded, now))
    return "".join(difflib.unified_diff(old, new, f"{name} (recorded)", f"{name} (now)", n=4))


# ---------------------------------------------------------------- parse


def parse(text: str, path: str = "scenario") -> Scenario:
    """Raises UsageError that names the line."""
    lines = [line.rstrip() for line in text.split("\n")]
    if not lines or not is_scenario(lines[0]):
        raise UsageError(f"{path}:1: the first line must begin with '{FIRST}'.")
    end = next((at for at, line in enumerate(lines) if not line), len(lines))
    header, config = read_config(lines[:end], path)
    marks = [at for at, line in enumerate(lines) if line.startswith("===")]
    if len(marks) > 1:
        raise UsageError(f"{path}:{marks[1] + 1}: a scenario has two courses at most.")
    split = marks[0] if marks else len(lines)
    return Scenario(
        title=header.get("scenario", ""),
        rule=header.get("rule", ""),
        without=header.get("without", ""),
        config=config,
        course=Course(tuple(_items(lines, end, split, path))),
        kept=_kept(lines, split, path) if marks else None,
    )


def _kept(lines: list[str], mark: int, path: str) -> Course:
    match = _COURSE.fullmatch(lines[mark])
    if match is None:
        raise UsageError(
            f"{path}:{mark + 1}: expected '=== with the rule' or '=== with the rule, after N equal steps'."
        )
    return Course(tuple(_items(lines, mark + 1, len(lines), path)), int(match[1] or 0))


def _items(lines: list[str], first: int, end: int, path: str) -> Iterator[Item]:
    prose: list[str] = []
    step: Step | None = None
    for at in range(first, end):
        line = lines[at]
        if line.startswith(INDENT):
            if step is None:
                raise UsageError(f"{path}:{at + 1}: an indented line is what came of a command; none is above it.")
            step = Step(step.command, (*step.outcome, line.removeprefix(INDENT)), step.line)
            continue
        if step is not None:
            yield step
            step = None
        if prose and (not line or line.startswith(COMMAND)):
            yield Prose(tuple(prose))
            prose = []
        if line.startswith(COMMAND):
            step = Step(line.removeprefix(COMMAND).strip(), line=at + 1)
        elif line:
            prose.append(line)
    if step is not None:
        yield step
    if prose:
        yield Prose(tuple(prose))
