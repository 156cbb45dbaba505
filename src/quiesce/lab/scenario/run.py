"""`quiesce lab run` of a scenario file."""

from __future__ import annotations

from pathlib import Path

import click

from quiesce.lab.scenario.file import read, retold
from quiesce.lab.scenario.format import Scenario, difference, printed
from quiesce.lab.scenario.shipped import shipped


def run(path: Path, *, rewrite: bool = False) -> int:
    """Replay a file; 1 when something comes out otherwise than recorded. `rewrite` records it anew."""
    recorded, now = retold(path)
    if rewrite:
        path.write_text(printed(now), encoding="utf-8")
    if changed := difference(recorded, now, path.name):
        click.echo(changed, nl=False)
    click.echo(f"{path.name}: {_steps(now)}, {_verdict(bool(changed), rewrite)}")
    return int(bool(changed) and not rewrite)


def _verdict(is_changed: bool, rewrite: bool) -> str:
    if not is_changed:
        return "all as recorded"
    return "recorded anew" if rewrite else "not as recorded"


def _steps(scenario: Scenario) -> str:
    if scenario.kept is None:
        return f"{len(scenario.course.steps)} steps"
    return f"{len(scenario.course.steps)} steps, {scenario.kept.same + len(scenario.kept.steps)} with the rule in place"


def list_shipped() -> None:
    """Names, rules and titles."""
    for path in shipped():
        scenario = read(path)
        rule = f"rule {scenario.rule}" if scenario.rule else ""
        click.echo(f"{path.stem:44} {rule:12} {scenario.title}")
