"""No child outlives its supervisor: it holds the reading end of a pipe that nobody writes to."""

from __future__ import annotations

import os
import signal
import threading
import time


def stop_with_parent(fd: int, grace_s: float) -> None:
    """Watch `fd` from a thread; at end of file (the supervisor is gone) SIGTERM this process, after `grace_s` SIGKILL.

    A pipe rather than PR_SET_PDEATHSIG: that one follows the supervisor's thread, not its process, and is Linux only.
    """
    os.set_inheritable(fd, False)
    threading.Thread(target=_watch, args=(fd, grace_s), name="parent", daemon=True).start()


def _watch(fd: int, grace_s: float) -> None:
    while os.read(fd, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os.kill(os.getpid(), signal.SIGKILL)
