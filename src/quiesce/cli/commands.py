"""Groups of commands. A command's module is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from quiesce.lasting import making_what_lasts


class Commands(click.Group):
    """Commands by name, in the order of `--help`; `table` says of each which attribute of which module it is."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, attribute = self.table[cmd_name]
        with making_what_lasts():
            command = getattr(importlib.import_module(module), attribute)
        return command if isinstance(command, click.Command) else None
