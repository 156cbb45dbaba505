"""The generated parts of docs/scenarios.md: `python -m quiesce.lab.scenario.docs docs/scenarios.md`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from quiesce.lab.scenario.file import read
from quiesce.lab.scenario.shipped import FOLDER, shipped

EXAMPLE = "no-tombstone"


def page(text: str) -> str:
    """The page with its generated parts as they must be now."""
    for name, part in (("example", _example()), ("list", _list())):
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text = mark.sub(lambda found, part=part: f"{found[1]}{part}{found[2]}", text)  # type: ignore[misc]
    return text


def _example() -> str:
    return f"```text\n{(FOLDER / f'{EXAMPLE}.txt').read_text(encoding='utf-8')}```\n"


def _list() -> str:
    lines = ["| file | rule | what happens | left out |", "| --- | --- | --- | --- |"]
    for path in sorted(shipped(), key=lambda path: (_order(read(path).rule), path.stem)):
        scenario = read(path)
        lines.append(f"| `{path.stem}` | {scenario.rule} | {scenario.title} | {scenario.without or '-'} |")
    return "\n".join(lines) + "\n"


def _order(rule: str) -> tuple[bool, int]:
    number = re.search(r"\d+", rule)
    return not rule[:1].isdigit(), int(number[0]) if number else 0


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.write_text(page(where.read_text(encoding="utf-8")), encoding="utf-8")
