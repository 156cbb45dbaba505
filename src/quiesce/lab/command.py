"""`quiesce lab`: commands that try to break the product."""

from __future__ import annotations

import click

from quiesce.cli.commands import Commands

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("quiesce.lab.run", "command"),
    "trace": ("quiesce.lab.trace.command", "command"),
    "swarm": ("quiesce.lab.swarm.command", "command"),
}
"""Command to (module, attribute), in the order of `--help`."""


@click.command(cls=Commands, table=COMMANDS, short_help="Try to break the hand-off: simulated clusters, races as text.")
def command() -> None:
    """The laboratory: the shipping machines under faults. Nothing here is part of a server that runs."""
