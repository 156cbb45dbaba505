"""`python -m quiesce.lab.router ...`: `quiesce router` that gives all tenants one salt: they share prefixes."""

from __future__ import annotations

import sys

from quiesce.cli.processes import router
from quiesce.cli.report import run
from quiesce.router import tenants_file


def _no_salt(secret: bytes, name: str) -> str:
    return ""


def main(argv: list[str]) -> int:
    """Run the router; the exit code."""
    tenants_file.salt_of = _no_salt  # type: ignore[attr-defined]
    return run(router, argv, "lab router")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
