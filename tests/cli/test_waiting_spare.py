"""Whether a spare waits is told by a lock, which no end of its process can leave behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console

from quiesce.cli.settings import write_file
from quiesce.cli.snapshot_view import view
from quiesce.cli.waiting_spare import WaitingSpare, spares, waiting_at, waiting_file

WAITS = """
import sys
from quiesce.cli.waiting_spare import waiting_at
with waiting_at(sys.argv[1]):
    print(flush=True)
    sys.stdin.read()
"""


def test_it_waits_for_as_long_as_it_holds_the_lock(tmp_path: Path) -> None:
    write_file(tmp_path / "router.toml", {"model": "tiny"})
    write_file(tmp_path / "spare.toml", {"model": "tiny", "holds": "libraries"})
    assert spares(tmp_path) == [WaitingSpare("spare", "libraries", waiting=False)]
    with waiting_at(str(waiting_file(tmp_path, "spare"))):
        assert spares(tmp_path) == [WaitingSpare("spare", "libraries", waiting=True)]
    assert not spares(tmp_path)[0].waiting


def test_one_that_was_killed_does_not_wait(tmp_path: Path) -> None:
    write_file(tmp_path / "spare.toml", {"holds": "model"})
    words = [sys.executable, "-c", WAITS, str(waiting_file(tmp_path, "spare"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert spares(tmp_path)[0].waiting
        process.kill()
    assert not spares(tmp_path)[0].waiting


def test_without_a_file_nothing_is_locked(tmp_path: Path) -> None:
    with waiting_at(""):
        assert not list(tmp_path.iterdir())


def test_a_spare_is_drawn_below_the_workers() -> None:
    console = Console(width=120)
    with console.capture() as capture:
        known = [WaitingSpare("spare", "model", waiting=True), WaitingSpare("spare-router", "router", waiting=False)]
        console.print(view(Path("/run/q"), [], known))
    _, waits, none = capture.get().splitlines()
    assert waits == "spare: waits for a process to die; holds libraries and model"
    assert none == "spare-router: none waits now (one would hold a router's libraries and tokenizer)"
