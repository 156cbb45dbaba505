"""`python -m quiesce`: the command, where no script of it is on the PATH."""

from __future__ import annotations

import sys

from quiesce.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
