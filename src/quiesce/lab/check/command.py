"""`quiesce check`: explore the named worlds, and say what was found."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from quiesce.errors import UsageError
from quiesce.lab.check import show
from quiesce.lab.check.job import Found, cores, explored_all
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.worlds import FULL, LARGER, SMALL
from quiesce.lab.mutants.mutant import Mutant
from quiesce.lab.mutants.registry import BY_NAME, MUTANTS
from quiesce.lab.scenario.record import write


@click.command(short_help="Explore every state of small worlds of the shipping machines.")
@click.option(
    "--bounds", type=click.Choice(["small", "full"]), default="small", show_default=True, help="Which worlds."
)
@click.option("--world", "names", metavar="NAME", multiple=True, help="Only this world; may be given again.")
@click.option("--mutant", metavar="NAME", help="Leave a rule out, and show what goes wrong.")
@click.option("--list", "listed", is_flag=True, help="Name the worlds and mutants, and end.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="Processes; default: one a core.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--write", "target", metavar="FILE", type=click.Path(path_type=Path), help="A violation as a scenario.")
@click.pass_context
def command(
    ctx: click.Context,
    bounds: str,
    names: tuple[str, ...],
    mutant: str | None,
    listed: bool,
    jobs: int | None,
    form: str,
    target: Path | None,
) -> None:
    """Explore the hand-off's shipping machines in every order of events, loss, failure and crash, in small worlds.

    After each step the invariants of the protocol are checked, and from each state whether everything comes to rest
    when no more faults strike. Exits with 1 when something is wrong. What this does and does not say: docs/check.md.
    """
    if listed:
        _list()
        return
    without = _mutant(mutant) if mutant else None
    worlds = _chosen(bounds, names, without)
    began_s = time.perf_counter()
    every = _run(worlds, jobs or cores(), without, quiet=form == "json")
    seconds = time.perf_counter() - began_s
    wrong = [each for each in every if each.violation]
    if form == "json":
        click.echo(show.as_json(every, seconds))
    else:
        click.echo("\n".join([*(f"\n{show.story(each)}" for each in wrong), "", show.total(every, seconds)]))
    if wrong and target is not None:
        first = wrong[0]
        target.write_text(write(worlds[first.world], first.trace, first.violation, without), encoding="utf-8")
    ctx.exit(1 if wrong else 0)


def _list() -> None:
    click.echo("worlds of small bounds\n" + "\n".join(f"  {name}" for name in SMALL))
    click.echo("worlds of full bounds, besides\n" + "\n".join(f"  {name}" for name in LARGER))
    seen = [each for each in MUTANTS if each.world is not None]
    click.echo("mutants\n" + "\n".join(f"  {each.name} (rule {each.rule})" for each in seen))


def _mutant(name: str) -> Mutant:
    """Raises UsageError."""
    if name not in BY_NAME:
        raise UsageError(f"There is no mutant '{name}'; `quiesce check --list` names them.")
    return BY_NAME[name]


def _chosen(bounds: str, names: tuple[str, ...], mutant: Mutant | None) -> Mapping[str, Config]:
    """Raises UsageError."""
    if unknown := [name for name in names if name not in FULL]:
        raise UsageError(f"There is no world '{unknown[0]}'; `quiesce check --list` names them.")
    if names:
        return {name: FULL[name] for name in names}
    if mutant is None:
        return SMALL if bounds == "small" else LARGER | SMALL
    if mutant.world is None:
        raise UsageError(
            f"No world shows '{mutant.name}'; what fails is the check {mutant.check} in the tests of the protocol."
        )
    return {f"without: {mutant.name}": mutant.world}


def _run(worlds: Mapping[str, Config], jobs: int, mutant: Mutant | None, *, quiet: bool) -> list[Found]:
    every = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("worlds", total=len(worlds))
        if not quiet:
            click.echo(show.HEAD)
        for found in explored_all(worlds, jobs, mutant.name if mutant else ""):
            every.append(found)
            bar.advance(task)
            if not quiet:
                click.echo(show.line(found))
    return every
