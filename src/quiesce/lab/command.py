"""`quiesce lab`: commands that try to break the product. A command's module is imported when it is asked for."""

from __future__ import annotations

import importlib

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("quiesce.lab.run", "command"),
    "trace": ("quiesce.lab.trace.command", "command"),
    "swarm": ("quiesce.lab.swarm.command", "command"),
}
"""Command to (module, attribute), in the order of `--help`."""


class LabCommands(click.Group):
    """Commands by name, imported lazily."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        return command if isinstance(command, click.Command) else None


@click.command(cls=LabCommands, short_help="Try to break the hand-off: simulated clusters, races as text.")
def command() -> None:
    """The laboratory: the shipping machines under faults. Nothing here is part of a server that runs."""
