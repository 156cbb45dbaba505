"""`python -m quiesce.lab.worker ROLE ...`: a worker as `quiesce ROLE` runs it, with faults composed in.

`quiesce.lab.composition` says which: QUIESCE_LAB names them.
"""

from __future__ import annotations

import sys

from quiesce.cli.report import report
from quiesce.errors import UsageError
from quiesce.lasting import making_what_lasts

WORDS = ("prefill", "decode", "aggregated", "spare")


def main(argv: list[str]) -> int:
    """Run one worker; the exit code."""
    try:
        if not argv or argv[0] not in WORDS:
            raise UsageError(f"the first word must be one of {', '.join(WORDS)}.")
        word = argv[0]
        with making_what_lasts():
            from quiesce.lab.composition import command_of
        code = command_of(word).main(argv[1:], prog_name=f"lab {word}", standalone_mode=False)
    except BaseException as error:
        return report(error, argv)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
