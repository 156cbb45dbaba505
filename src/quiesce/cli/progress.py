"""What a start is waiting for."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.status import Status

from quiesce.cli.terminal import tell


class Progress:
    """Use as `with`. On a terminal one line that changes, gone at the end; elsewhere a line for each stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def now(self, stage: str) -> None:
        """Say the stage, unless it is the last one that was said."""
        if stage == self._stage:
            return
        self._stage = stage
        if self._status is not None:
            self._status.update(stage)
        else:
            tell(self._console, f"quiesce: {stage}")
