"""A spare that waits ends with its supervisor, whatever was done to it; what it becomes looks like any other life."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

import pytest
import setproctitle

from quiesce.cli import processes
from quiesce.cli.processes import worker_command
from quiesce.cli.spare import _dying_with_parent, _worker
from quiesce.worker.settings import WorkerSettings

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")

STOPPED = """
import os, signal
from quiesce.cli.spare import _dying_with_parent
with _dying_with_parent():
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
_PR_GET_PDEATHSIG = 2


@LINUX
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


@LINUX
def test_who_has_become_somebody_drains_in_its_own_time() -> None:
    with _dying_with_parent():
        assert _ends_with() == signal.SIGKILL
    assert _ends_with() == 0


def _ends_with() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value


def test_lives_from_nothing_and_from_spares_look_alike_in_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(setproctitle, "setproctitle", shown.append)
    monkeypatch.setattr(processes, "stop_with_parent", lambda *_: None)
    words = ["decode", "--name", "decode-0", "--listen", "unix:/d.sock", "--parent-fd", "9"]
    fresh = worker_command("decode", lambda _: 0)
    assert fresh.main(words[1:], prog_name="quiesce decode", standalone_mode=False) == 0
    spare = _worker(WorkerSettings(role="decode", name="spare", listen=""), lambda *_: 0, load=False)
    assert spare(words).main(words[1:], prog_name="quiesce decode", standalone_mode=False) == 0
    assert shown == [f"quiesce {' '.join(words)}"] * 2


def test_who_was_started_by_hand_keeps_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setproctitle, "setproctitle", lambda _: pytest.fail("it was changed"))
    by_hand = worker_command("decode", lambda _: 0)
    words = ["--name", "decode-0", "--listen", "unix:/d.sock"]
    assert by_hand.main(words, prog_name="quiesce decode", standalone_mode=False) == 0
