"""`python -m quiesce.lab.serve ...`: `quiesce serve`, whose workers are those of `quiesce.lab.worker`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from quiesce.cli.options import SettingsCommand
from quiesce.cli.plan import product_entry
from quiesce.cli.report import run
from quiesce.cli.serve import serve
from quiesce.cli.settings import Composed
from quiesce.cli.tree import EVERY_NAME, SERVE
from quiesce.lab.broken import broken_parts


def lab_entry(role: str, name: str) -> Sequence[str]:
    """Workers of the laboratory; the product's router, unless its salts are to be broken."""
    if role == "router":
        unsalted = "unsalted" in broken_parts()
        return (sys.executable, "-m", "quiesce.lab.router") if unsalted else product_entry(role, name)
    return (sys.executable, "-m", "quiesce.lab.worker", role)


def _action(composed: Composed, parent_fd: int | None) -> int:
    return serve(composed, entry=lab_entry)


def main(argv: list[str]) -> int:
    command = SettingsCommand(
        "serve", SERVE, _action, EVERY_NAME, about="Serve with faults.", short="Serve with faults.", examples=()
    )
    return run(command, argv, "lab serve")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
