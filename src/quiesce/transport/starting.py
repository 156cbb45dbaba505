"""A library that never comes back from its start ends the process, not the day of whoever waits for it."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager

START_S = 30.0
"""Starts take a fraction of a second; one in many thousands never ended (Mooncake)."""
_STDERR = 2


@contextmanager
def starting(within_s: float = START_S) -> Iterator[None]:
    """End this process with exit code 1, its threads' stacks on stderr, when the block takes longer.

    No thread of ours could: a library may hold the interpreter's lock. A supervisor begins another life.
    """
    faulthandler.dump_traceback_later(within_s, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
