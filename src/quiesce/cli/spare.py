"""`quiesce spare`: a process that has loaded what is slow to load, and waits to be told which process it is.

Its supervisor writes one line to its stdin, a JSON list: the command and its options, as on a command line. Then it is
that process: incarnation, tags and pools are made when the command runs, as in any other life. Nobody has to end a
spare: the end of whoever would speak to it is the end of its stdin.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click
import msgspec
from msgspec import Meta

from quiesce.cli.fields import Slice
from quiesce.cli.options import SettingsCommand
from quiesce.cli.processes import naming_what_is_missing, router_command, worker_command
from quiesce.cli.settings import Composed
from quiesce.cli.waiting_spare import waiting_at
from quiesce.errors import invariant
from quiesce.lasting import making_what_lasts
from quiesce.router.settings import RouterSettings
from quiesce.worker.settings import Role, WorkerSettings

if TYPE_CHECKING:
    from quiesce.worker.loading import Loaded

Holds = Literal["model", "libraries", "router"]
Become = Callable[[list[str]], click.Command]
"""The command that words begin with, which uses what was loaded."""

RunLoaded = Callable[[WorkerSettings, "Loaded | None"], int]
"""Run one worker, with what a spare has loaded for it."""

_ADJUSTMENT = Path("/proc/self/oom_score_adj")
_FIRST_VICTIM = "1000"
_PR_SET_PDEATHSIG = 1


class SpareSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Beside those settings of a worker that decide what it loads."""

    holds: Annotated[Holds, Meta(description="A worker's libraries and model, its libraries only, or a router's.")]
    waits_at: Annotated[str, Meta(description="File that it locks while it waits, so that others can see it.")] = ""


SPARE = (Slice(SpareSettings), Slice(WorkerSettings, frozenset({"role", "name", "listen", "peer"})))


def spare_command(run: RunLoaded) -> SettingsCommand:
    """The command of a spare whose workers run through `run`. `quiesce.lab` gives one that composes faults in."""

    def action(composed: Composed, parent_fd: int | None) -> int:
        told = composed.build(SpareSettings)
        settings = composed.build(WorkerSettings, role="decode", name="spare", listen="")
        with _first_to_go_without_memory(), _dying_with_parent(), naming_what_is_missing():
            become = _become(told.holds, settings, run)
            with waiting_at(told.waits_at):
                words = _hear()
        if not words:
            return 0
        code = become(words).main(words[1:], prog_name=f"quiesce {words[0]}", standalone_mode=False)
        return code if isinstance(code, int) else 0

    return SettingsCommand("spare", SPARE, action, (), about="For supervisors.", short="For supervisors.")


def _hear() -> list[str]:
    """The words, once they are said; none when nobody will say them. SIGTERM ends the wait and the process."""
    line = sys.stdin.buffer.readline()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    if not line.endswith(b"\n"):
        return []
    return msgspec.json.decode(line, type=list[str])


def _become(holds: Holds, settings: WorkerSettings, run: RunLoaded) -> Become:
    return _router(settings.model) if holds == "router" else _worker(settings, run, load=holds == "model")


def _worker(settings: WorkerSettings, run: RunLoaded, *, load: bool) -> Become:
    with making_what_lasts():
        import quiesce.worker.main  # noqa: F401 - takes seconds, which the worker will not need
        from quiesce.worker.loading import Loaded

        loaded = Loaded(settings) if load else None
    return lambda words: worker_command(msgspec.convert(words[0], Role), lambda told: run(told, loaded))


def _router(model: str) -> Become:
    with making_what_lasts():
        from quiesce.router.main import run
        from quiesce.text.model import TextModel

        text = TextModel.load(model)

    def run_loaded(settings: RouterSettings) -> int:
        return run(settings, text if settings.model == model else None)

    def become(words: list[str]) -> click.Command:
        invariant(words[0] == "router", "a router's spare becomes a router")
        return router_command(run_loaded)

    return become


@contextlib.contextmanager
def _first_to_go_without_memory() -> Iterator[None]:
    """While nobody needs it, it is what the kernel should end first when memory is short; afterwards as it was."""
    try:
        before = _ADJUSTMENT.read_text(encoding="ascii")
        _ADJUSTMENT.write_text(_FIRST_VICTIM, encoding="ascii")
    except OSError:  # another system, or not allowed
        yield
        return
    yield
    _ADJUSTMENT.write_text(before, encoding="ascii")


@contextlib.contextmanager
def _dying_with_parent() -> Iterator[None]:
    """While it waits, the kernel ends it with its supervisor, even if it is stopped and cannot see its stdin's end.

    Linux follows the thread that started us: a supervisor starts processes on its loop's thread only, its main one.
    Who has become somebody watches the supervisor as everybody does, and has time to drain.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def _run_worker(settings: WorkerSettings, loaded: Loaded | None) -> int:
    from quiesce.worker.main import run

    return run(settings, loaded=loaded)


command = spare_command(_run_worker)
command.hidden = True
