"""How far a Python thread of some process has come, for others to see while that process is busy."""

from __future__ import annotations

import mmap
import os
import threading
import time

BEAT_S = 100e-6


def new_pulse() -> int:
    """The descriptor of memory to count in."""
    fd = os.memfd_create("quiesce-pulse")
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd


class Pulse:
    """A count that is shared by all who have its descriptor, which the caller keeps and may close."""

    def __init__(self, fd: int) -> None:
        self._words = memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("Q")

    @property
    def beats(self) -> int:
        return self._words[0]

    def start(self) -> None:
        """Count from now on, in a thread of this process, as often as the interpreter lets it."""
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def _beat(self) -> None:
        while True:
            self._words[0] += 1
            time.sleep(BEAT_S)
