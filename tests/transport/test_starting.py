"""A library's start that hangs, with the interpreter's lock held, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

HANGS = """
import ctypes
from quiesce.transport.starting import starting

with starting(within_s=0.1):
    ctypes.PyDLL(None).pause()  # PyDLL keeps the lock
"""
ENDS = """
import signal
from quiesce.transport.starting import starting

with starting(within_s=0.1):
    pass
print(signal.sigtimedwait([], 0.3))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_a_start_that_hangs_ends_the_process_and_shows_where() -> None:
    ended = run(HANGS)
    assert ended.returncode == 1
    assert 'File "<string>", line 6' in ended.stderr


def test_a_start_that_ended_is_left_alone() -> None:
    ended = run(ENDS)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "None\n", "")
