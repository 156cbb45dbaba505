"""`quiesce lab run FILE`: what a file of the laboratory tells, once more. Its first line says which kind it is."""

from __future__ import annotations

from pathlib import Path

import click

from quiesce.errors import UsageError
from quiesce.lab.scenario.format import is_scenario
from quiesce.lab.scenario.run import list_shipped
from quiesce.lab.scenario.run import run as run_scenario
from quiesce.lab.scenario.shipped import found
from quiesce.lab.swarm.file import is_story
from quiesce.lab.swarm.replay import replay


@click.command(short_help="Replay races written as text, and compare with what was recorded.")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--rewrite", is_flag=True, help="Record anew what comes of each command.")
@click.option("--real", is_flag=True, help="Have it told by real worker processes with a real model.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], rewrite: bool, real: bool) -> None:
    """Replay scenario files: a path, or the name of one that is shipped. Without FILE they are listed.

    Exits with 1 when something comes out otherwise than recorded, and shows the difference.
    """
    if rewrite and real:
        raise UsageError("--rewrite records what comes of the commands in the explorer's world: leave out --real.")
    if not files:
        list_shipped()
    ctx.exit(max((_run(found(file), rewrite=rewrite, real=real) for file in files), default=0))


def _run(path: Path, *, rewrite: bool, real: bool) -> int:
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    if is_scenario(first) and real:
        from quiesce.lab.scenario.real.play import run_real

        return run_real(path)
    if is_scenario(first):
        return run_scenario(path, rewrite=rewrite)
    if is_story(first) and (rewrite or real):
        raise UsageError(f"{path.name} is a file of the simulator: it is replayed as it is.")
    if is_story(first):
        return replay(path)
    raise UsageError(
        f"{path} is no file of the laboratory: its first line must be 'scenario: TITLE' or 'swarm: TITLE'."
    )
