"""`python -m quiesce.lab.router ...`: `quiesce router` that gives all tenants one salt: they share prefixes."""

from __future__ import annotations

import sys

from quiesce.cli.processes import router
from quiesce.cli.report import report
from quiesce.router import tenants_file


def _no_salt(secret: bytes, name: str) -> str:
    return ""


def main(argv: list[str]) -> int:
    """Run the router; the exit code."""
    tenants_file.salt_of = _no_salt  # type: ignore[attr-defined]
    try:
        code = router.main(argv, prog_name="lab router", standalone_mode=False)
    except BaseException as error:
        return report(error, argv)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
