"""How an error reaches the person at the terminal: a line on stderr and an exit code. No traceback unless asked."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import IO, cast

import click

from quiesce import __version__
from quiesce.cli.foreign import explained
from quiesce.control.plain_text import shown_lines
from quiesce.errors import ConfigurationError, QuiesceError

INTERRUPTED = 130
INTERNAL = 70


class _Plain(io.TextIOBase):
    """stderr, for words that may quote anybody: what a terminal would obey is written out."""

    def write(self, text: str) -> int:
        sys.stderr.write(shown_lines(text))
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        """Else click would take out, unseen, what is to be seen."""
        return True


def run(command: click.Command, argv: Sequence[str], prog_name: str) -> int:
    """Run a command line to its end; returns the exit code."""
    try:
        code = command.main(list(argv), prog_name=prog_name, standalone_mode=False)
    except BaseException as error:
        return report(error, argv)
    return code if isinstance(code, int) else 0


def report(error: BaseException, argv: Sequence[str]) -> int:
    """Say what happened on stderr; returns the exit code (table in `quiesce.errors`)."""
    if wants_traceback(argv) and not isinstance(error, click.ClickException):
        traceback.print_exception(error, file=_Plain())
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):  # whoever read our output has closed it
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, click.ClickException):
        (explained(error) if isinstance(error, click.NoSuchOption) else error).show(cast(IO[str], _Plain()))
        return error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    if isinstance(error, QuiesceError):
        _say(*_lines(error))
        return error.exit_code
    _say(*_internal(error))
    return INTERNAL


def warn(warning: str) -> None:
    """What does not end the command, but should be read."""
    _say(f"warning: {warning}")


def wants_traceback(argv: Sequence[str]) -> bool:
    """Whether this command line, or the environment, says `--log-level debug`."""
    words = " ".join(argv)
    return (
        "--log-level debug" in words or "--log-level=debug" in words or os.environ.get("QUIESCE_LOG_LEVEL") == "debug"
    )


def _lines(error: QuiesceError) -> list[str]:
    return error.problems if isinstance(error, ConfigurationError) else [str(error)]


def _internal(error: BaseException) -> list[str]:
    return [
        f"internal error: {type(error).__name__}: {error}",
        f"This is a bug in quiesce {__version__}. Run again with --log-level debug and report what it prints.",
    ]


def _say(*lines: str) -> None:
    for line in lines:
        print(f"quiesce: {line}", file=_Plain())
