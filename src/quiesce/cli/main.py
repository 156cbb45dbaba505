"""`quiesce`: the group of commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from quiesce import __version__
from quiesce.cli.commands import Commands
from quiesce.cli.report import run

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


@click.command(
    cls=Commands,
    table=COMMANDS,
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
    return run(quiesce, sys.argv[1:] if argv is None else argv, "quiesce")


if __name__ == "__main__":
    sys.exit(main())
