"""Where a server speaks: stderr, which may go away while serving goes on."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from quiesce.control.plain_text import shown, shown_lines


class Terminal(Console):
    """stderr. When nobody reads it any more it falls silent, instead of ending the process as rich would."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False)

    def on_broken_pipe(self) -> None:
        self.quiet = True


def tell(console: Console, line: str) -> None:
    """A line above the status line, if there is one. A terminal that was closed is no reason to stop."""
    try:
        console.print(shown_lines(line), soft_wrap=True, markup=False, emoji=False, highlight=False)
    except OSError:
        console.quiet = True


def plainly(said: str, style: str = "") -> Text:
    """What came from a worker or a router, to be printed: it styles nothing and moves no cursor."""
    return Text(shown(said), style=style)
