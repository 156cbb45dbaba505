"""`quiesce`: the group of commands. A command's module is imported when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from quiesce import __version__
from quiesce.cli.report import report
from quiesce.lasting import making_what_lasts

# Command to (module, attribute), in the order of `--help`.
COMMANDS = {
    "serve": ("quiesce.cli.serve", "command"),
    "router": ("quiesce.cli.processes", "router"),
    "prefill": ("quiesce.cli.processes", "prefill"),
    "decode": ("quiesce.cli.processes", "decode"),
    "aggregated": ("quiesce.cli.processes", "aggregated"),
    "spare": ("quiesce.cli.spare", "command"),
    "inspect": ("quiesce.cli.inspect", "command"),
    "audit": ("quiesce.cli.audit", "command"),
    "doctor": ("quiesce.cli.doctor", "command"),
    "certs": ("quiesce.cli.certs", "command"),
    "keys": ("quiesce.cli.keys", "command"),
    "restart": ("quiesce.cli.restart", "command"),
    "models": ("quiesce.cli.models", "command"),
    "lab": ("quiesce.lab.command", "command"),
    "check": ("quiesce.lab.check.command", "command"),
    "version": ("quiesce.cli.version", "command"),
}


class Commands(click.Group):
    """Commands by name, imported lazily."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        with making_what_lasts():
            command = getattr(importlib.import_module(module), attribute)
        return command if isinstance(command, click.Command) else None


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="`quiesce serve` is the default job: SmolLM2-135M on http://127.0.0.1:8000, prefill and decode apart.",
)
@click.version_option(__version__, message="quiesce %(version)s")
def quiesce() -> None:
    """Serve language models with prefill and decode in separate processes.

    A KV page changes owner only on proof that nothing can still write to it.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 fine, 1 found something, 2 usage, 3 machine, 4 peer, 70 our bug)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = quiesce.main(words, prog_name="quiesce", standalone_mode=False)
    except BaseException as error:
        return report(error, words)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
