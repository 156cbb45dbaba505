"""A file of the simulator, once more: does the same come of it?"""

from __future__ import annotations

import logging
from pathlib import Path

import click

from quiesce.lab.swarm import file
from quiesce.lab.swarm.run import run
from quiesce.lab.swarm.without import mutant


def replay(path: Path) -> int:
    """Run a file and say what comes of it: 0 when it is what the file says, 1 when it is not. Raises UsageError."""
    logging.getLogger("quiesce").setLevel(logging.CRITICAL)
    story = file.read(path)
    with mutant(story.mutant) as without:
        outcome = run(story.plan, without=without, tells=True)
    if outcome.violation == story.violation:
        click.echo(f"{path}: as recorded: {outcome.violation} broken at {outcome.at_s:.6f} s: {outcome.detail}")
        return 0
    found = f"{outcome.violation} is broken: {outcome.detail}" if outcome.violation else "nothing is broken any more"
    click.echo(f"{path}: {story.violation} was recorded, but {found}.")
    return 1
