"""A spare that waits ends with its supervisor, whatever was done to it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

import pytest

from quiesce.cli.spare import _dying_with_parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")

STOPPED = """
import os, signal
from quiesce.cli.spare import _dying_with_parent
with _dying_with_parent():
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
_PR_GET_PDEATHSIG = 2


def test_a_stopped_one_does_not_outlive_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, STOPPED], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        try:
            assert parent.communicate(timeout=60)[0] == b"", "whoever could write is gone"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_who_has_become_somebody_drains_in_its_own_time() -> None:
    with _dying_with_parent():
        assert _ends_with() == signal.SIGKILL
    assert _ends_with() == 0


def _ends_with() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value
