"""`quiesce router|prefill|decode|aggregated`: one process each, alone on a host or started by `quiesce serve`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import click
import setproctitle

from quiesce.cli.fields import Slice
from quiesce.cli.installation import lacks
from quiesce.cli.open_door import open_door_warning
from quiesce.cli.options import WORDS, SettingsCommand
from quiesce.cli.parent import stop_with_parent
from quiesce.cli.report import warn
from quiesce.cli.settings import Composed
from quiesce.cli.tree import EVERY_NAME, ROUTER, UNPAIRED_WORKER, WORKER
from quiesce.lasting import making_what_lasts
from quiesce.router.settings import RouterSettings
from quiesce.worker.settings import Role, WorkerSettings

RunWorker = Callable[[WorkerSettings], int]
RunRouter = Callable[[RouterSettings], int]

_HELP = {
    "prefill": "Run one prefill worker: it computes prompts' KV, and writes it into decode's pages or lends it.",
    "decode": "Run one decode worker: it owns the pages that prompts' KV comes to, and generates.",
    "aggregated": "Run one worker that does both halves: no hand-off, the reference that others are compared with.",
}
_SHORT = {
    "prefill": "Run one prefill worker.",
    "decode": "Run one decode worker.",
    "aggregated": "Run one worker that does both halves.",
}
_EXAMPLES = {
    "prefill": ("quiesce prefill --name prefill-0 --listen unix:/run/q/prefill-0.sock",),
    "decode": (
        "quiesce decode --name decode-0 --listen unix:/run/q/decode-0.sock \\",
        "               --peer prefill-0=unix:/run/q/prefill-0.sock",
    ),
    "aggregated": ("quiesce aggregated --name worker-0 --listen unix:/run/q/worker-0.sock",),
}
# An orphan has its own grace to drain, and a little more to end.
_ORPHAN_EXTRA_S = 5.0


def worker_command(role: Role, run: RunWorker) -> SettingsCommand:
    """The command that runs a worker of `role` through `run`. `quiesce.lab` gives a `run` that composes faults in."""

    def action(composed: Composed, parent_fd: int | None) -> int:
        settings = composed.build(WorkerSettings, role=role)
        _follow_parent(parent_fd, settings.grace_s)
        return run(settings)

    slices: Sequence[Slice] = WORKER if role == "decode" else UNPAIRED_WORKER
    return SettingsCommand(
        role, slices, action, EVERY_NAME, about=_HELP[role], short=_SHORT[role], examples=_EXAMPLES[role]
    )


def _follow_parent(parent_fd: int | None, grace_s: float) -> None:
    if parent_fd is not None:
        _show_in_ps(click.get_current_context())
        stop_with_parent(parent_fd, grace_s + _ORPHAN_EXTRA_S)


def _show_in_ps(context: click.Context) -> None:
    """All lives of a supervised process look alike, one that began from nothing and one that was a spare."""
    setproctitle.setproctitle(" ".join(("quiesce", str(context.command.name), *context.meta[WORDS])))


def _run_worker(settings: WorkerSettings) -> int:
    with naming_what_is_missing():
        with making_what_lasts():
            from quiesce.worker.main import run
        return run(settings)


def _run_router(settings: RouterSettings) -> int:
    with naming_what_is_missing():
        with making_what_lasts():
            from quiesce.router.main import run
        return run(settings)


@contextlib.contextmanager
def naming_what_is_missing() -> Iterator[None]:
    """A library that the light installation leaves out is no bug of ours."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "quiesce").partition(".")[0] == "quiesce":
            raise
        raise lacks(str(missing.name)) from None


def router_command(run: RunRouter) -> SettingsCommand:
    """The command that runs the router through `run`."""

    def action(composed: Composed, parent_fd: int | None) -> int:
        settings = composed.build(RouterSettings)
        warning = open_door_warning(settings.host, bool(settings.api_key or settings.tenants))
        if warning and parent_fd is None:  # a supervisor has said it
            warn(warning)
        _follow_parent(parent_fd, settings.drain_delay_s + settings.grace_s)
        return run(settings)

    return SettingsCommand(
        "router",
        ROUTER,
        action,
        EVERY_NAME,
        about="Run the router: the HTTP API, in front of workers that run elsewhere. It needs no torch.",
        short="Run the HTTP API alone.",
        examples=("quiesce router --worker unix:/run/q/prefill-0.sock --worker unix:/run/q/decode-0.sock",),
    )


router = router_command(_run_router)
prefill = worker_command("prefill", _run_worker)
decode = worker_command("decode", _run_worker)
aggregated = worker_command("aggregated", _run_worker)
