"""What a process makes at its start and keeps until its end: Python's collector of cycles need not look at it.

A worker's libraries are a quarter of a million objects. Looking at them again and again while they are made costs a
fifth of the start, looking at all of them once more delays its answers, and once more its end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def making_what_lasts() -> Iterator[None]:
    """The collector rests meanwhile. For imports and loading: what goes in a cycle there is not found before `keep`."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def keep() -> None:
    """Whatever there is now stays: the collector looks at what is made from here on. For a whole process only."""
    gc.freeze()
