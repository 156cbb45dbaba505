"""`python -m quiesce` is `quiesce`."""

import sys

from quiesce.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
