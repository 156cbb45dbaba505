"""`quiesce serve`: a router and its workers on this machine, kept alive, and stopped without losing a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from quiesce.cli import probe
from quiesce.cli.fronts import front_problems
from quiesce.cli.installation import require_engine
from quiesce.cli.options import SettingsCommand
from quiesce.cli.plan import EXIT_S, ROUTER_NAME, Entry, Planned, Pools, plan, product_entry, stages
from quiesce.cli.port import free_port, reachable, url
from quiesce.cli.progress import Progress
from quiesce.cli.relay import Once
from quiesce.cli.run_directory import run_directory
from quiesce.cli.serve_settings import ServeSettings
from quiesce.cli.settings import Composed, write_file
from quiesce.cli.spare_child import SpareSpec
from quiesce.cli.start_table import needs_key, start_table, warnings
from quiesce.cli.supervisor import Supervisor
from quiesce.cli.survey import Survey, survey
from quiesce.cli.terminal import Terminal, tell
from quiesce.cli.tree import EVERY_NAME, SERVE
from quiesce.errors import ConfigurationError, MachineLacksError
from quiesce.lasting import keep
from quiesce.protocol.dispatch import Welcome
from quiesce.router.tenants_file import read_tenants
from quiesce.telemetry.logs import configure, ids
from quiesce.telemetry.spans import require_exporter
from quiesce.text.catalog import ModelSource, resolve
from quiesce.transport.registry import backend, require_transfer, require_trusted
from quiesce.worker.settings import LANDING_NAMES, landing_conflict

_log = logging.getLogger(__name__)
_WATCH_S = 0.2
_ANOTHER_PORT = '; take another with --port N, which is make serve ARGS="--port N"'
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(composed: Composed, entry: Entry = product_entry, console: Console | None = None) -> int:
    """Serve until a signal; returns the exit code. `entry` starts the processes: the lab puts its own there.

    Raises `ConfigurationError` with all problems, and `MachineLacksError`, before anything is started.
    """
    console = console or Terminal()
    settings, source = _checked(composed)
    require_engine()
    # What serve says of itself is said at any level, as on a terminal.
    configure("debug" if settings.log_level == "debug" else "info", "serve", "serve", settings.log_format)
    surveyed = survey(source, settings, composed, lambda text: _say(console, settings, text))
    pools = Pools(surveyed.prefill_pool.tokens, surveyed.decode_pool.tokens)
    with run_directory() as run_dir:
        planned = plan(settings, composed, run_dir, entry, pools, surveyed.spare.holds)
        for process in planned:
            write_file(process.file, process.settings)
        keep()
        return asyncio.run(Server(settings, composed, planned, surveyed, console).run())


class Server:
    """One run of `quiesce serve`, from the first child to the last."""

    def __init__(
        self,
        settings: ServeSettings,
        composed: Composed,
        planned: list[Planned],
        surveyed: Survey,
        console: Console,
    ) -> None:
        self._settings = settings
        self._composed = composed
        self._planned = planned
        self._survey = surveyed
        self._console = console
        self._children_say = Once(lambda line: tell(console, line))
        self._workers = [process for process in planned if process.socket is not None]

    async def run(self) -> int:
        """Start, announce, wait for a signal, drain. A second signal ends everything at once."""
        async with _signals(self._stop_signals()) as signals, self._supervisor() as supervisor:
            if signal.SIGHUP not in self._stop_signals():
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload, supervisor)
            stop = asyncio.create_task(signals.get())
            up = asyncio.create_task(self._start(supervisor))
            await _first(stop, supervisor.gave_up, up)
            if up.done():
                up.result()
                await _first(stop, supervisor.gave_up)
            await _cancelled(up)
            if not stop.done():
                await _cancelled(stop)
                return self._give_up(supervisor)
            return await self._stop(supervisor, signals)

    def _stop_signals(self) -> tuple[signal.Signals, ...]:
        """A closed terminal stops the server. Where there is none, SIGHUP asks to read the file of tenants again."""
        reloads = self._composed.get("tenants") is not None and not sys.stderr.isatty()
        return _STOP_SIGNALS if reloads else (*_STOP_SIGNALS, signal.SIGHUP)

    def _reload(self, supervisor: Supervisor) -> None:
        supervisor.children[ROUTER_NAME].signal(signal.SIGHUP)

    def _supervisor(self) -> Supervisor:
        return Supervisor(
            [process.spec for process in self._planned if not process.stands_in_for],
            self._say,
            environ=child_environment(os.environ),
            hear=self._children_say.hear,
            spares=[SpareSpec(each.spec, each.stands_in_for) for each in self._planned if each.stands_in_for],
            up=self._up,
            heard=self._heard,
        )

    async def _up(self, name: str) -> None:
        """Wait until a process is of use: it is there, and some pair has answered."""
        await self._heard(name)
        await probe.ready(reachable(self._settings.host), self._settings.port)

    async def _heard(self, name: str) -> None:
        """Wait until a process says anything at all."""
        for process in self._workers:
            if process.spec.name == name and process.socket:
                await probe.greeting(process.socket)
        if name == ROUTER_NAME:
            await probe.answering(reachable(self._settings.host), self._settings.port)

    async def _start(self, supervisor: Supervisor) -> None:
        silent = Console(quiet=True)
        with Progress(silent if self._settings.log_format == "json" else self._console) as progress:
            watching = asyncio.create_task(self._watch(progress))
            try:
                workers = await self._greetings(supervisor)
            finally:
                await _cancelled(watching)
            progress.now("waiting for a first answer, end to end")
            await probe.ready(reachable(self._settings.host), self._settings.port)
            supervisor.mark_ready(ROUTER_NAME)
        supervisor.begin_spares()
        self._children_say.enough()
        self._announce(workers)

    async def _watch(self, progress: Progress) -> None:
        """Workers say nothing before they greet, but what they make in the cache can be seen."""
        while True:
            progress.now(self._survey.stage())
            await asyncio.sleep(_WATCH_S)

    async def _greetings(self, supervisor: Supervisor) -> list[Welcome]:
        async def greeted(process: Planned, socket: Path) -> Welcome:
            welcome = await probe.greeting(socket)
            supervisor.mark_ready(process.spec.name)
            return welcome

        return await asyncio.gather(*(greeted(process, process.socket) for process in self._workers if process.socket))

    def _announce(self, workers: list[Welcome]) -> None:
        where = url(self._settings.host, self._settings.port)
        if self._settings.log_format == "json":
            _log.info("ready", extra=ids(address=where, model=workers[0].model, count=len(workers)))
            for warning in warnings(workers, self._composed):
                _log.warning("%s", warning)
            return
        run_dir = self._planned[0].file.parent
        self._console.print(start_table(workers, self._composed, where, self._survey, run_dir))
        self._console.print(f"Ready. Try:\n{curl_example(where, needs_key(self._composed))}", soft_wrap=True)

    def _give_up(self, supervisor: Supervisor) -> int:
        over = supervisor.gave_up.result()
        self._say(f"giving up: {over.reason}")
        return over.exit_code

    async def _stop(self, supervisor: Supervisor, signals: asyncio.Queue[signal.Signals]) -> int:
        delay_s = msgspec.convert(self._composed.get("drain_delay_s"), float)
        self._say(stop_line(delay_s, self._settings.grace_s))
        workers = [process.spec.name for process in self._workers]
        drain = asyncio.create_task(supervisor.drain(stages(workers, delay_s, self._settings.grace_s)))
        again = asyncio.create_task(signals.get())
        await _first(drain, again)
        if drain.done():
            await _cancelled(again)
            return 0
        await _cancelled(drain)
        await supervisor.hurry(ROUTER_NAME, EXIT_S)
        supervisor.kill()
        return 128 + again.result()

    def _say(self, text: str) -> None:
        _say(self._console, self._settings, text)


def _say(console: Console, settings: ServeSettings, text: str) -> None:
    if settings.log_format == "json":
        _log.info("%s", text)
    else:
        tell(console, f"quiesce: {text}")


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What children inherit: everything but settings, which their files hold already."""
    said = {f"QUIESCE_{name.upper()}" for name in EVERY_NAME} | {"QUIESCE_CONFIG"}
    return {name: value for name, value in environ.items() if name not in said}


def stop_line(delay_s: float, grace_s: float) -> str:
    """What is said at the first signal."""
    serving = f"{delay_s:g} s in which /readiness says so and requests are served, " if delay_s else ""
    return f"stopping: {serving}up to {grace_s:g} s for running requests; once more ends everything now"


def curl_example(where: str, needs_key: bool) -> str:
    """A request that works in a shell, once a key that is needed is filled in."""
    key = " -H 'Authorization: Bearer KEY'" if needs_key else ""
    return (
        f"  curl {where}/v1/chat/completions -H 'Content-Type: application/json'{key} \\\n"
        """    -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}'"""
    )


def _checked(composed: Composed) -> tuple[ServeSettings, ModelSource]:
    """Settings with a port that can be bound, and a model that can be found: all that is cheap to know.

    Raises `ConfigurationError` with every problem at once, `MachineLacksError` when the model's package is missing.
    """
    problems = [*composed.problems, *_meaningless(composed)]
    if "port" in composed.values or not problems:  # a default that nobody asked for is no news beside what is wrong
        problems += _wrong_port(composed)
    problems.extend(front_problems(composed))
    problems += [*_wrong_tenants(composed), *_wrong_traces(composed), *_wrong_transport(composed)]
    if conflict := landing_conflict(*map(composed.get, LANDING_NAMES)):
        problems.append(conflict)
    source = None
    try:
        source = resolve(str(composed.get("model")))
    except ConfigurationError as error:
        problems.extend(error.problems)
    except MachineLacksError:
        if not problems:
            raise
    if source is None or problems:
        raise ConfigurationError(problems)
    return composed.build(ServeSettings), source


def _wrong_port(composed: Composed) -> list[str]:
    """Puts a free port in the place of 0."""
    host, port = composed.get("host"), composed.get("port")
    try:
        composed.values["port"] = free_port(str(host), port if isinstance(port, int) else 0, taken=_ANOTHER_PORT)
    except ConfigurationError as error:
        return error.problems
    return []


def _wrong_tenants(composed: Composed) -> list[str]:
    """What is wrong with the file of tenants, before any process begins."""
    try:
        if file := composed.get("tenants"):
            read_tenants(Path(str(file)), b"")
    except ConfigurationError as error:
        return error.problems
    return []


def _wrong_traces(composed: Composed) -> list[str]:
    endpoint = composed.get("otlp_endpoint")
    try:
        require_exporter(None if endpoint is None else str(endpoint))
    except ConfigurationError as error:
        return error.problems
    return []


def _wrong_transport(composed: Composed) -> list[str]:
    try:
        transfer = str(composed.get("transfer"))
        chosen = backend(str(composed.get("transport")), transfer)
        trusted = {"network": bool(composed.get("trust_network")), "library": bool(composed.get("trust_transport"))}
        if composed.get("mode") != "aggregated":
            require_transfer(chosen, transfer)
            require_trusted(chosen, **trusted)
    except ConfigurationError as error:
        return [f"--transport: {problem}" for problem in error.problems]
    return []


def _meaningless(composed: Composed) -> list[str]:
    """What was said although it means nothing in this mode."""
    if composed.get("mode") != "aggregated":
        return []
    return [
        f"{composed.settings[name].flag} means nothing with --mode aggregated, where there is no hand-off"
        for name in ("transfer", "landing")
        if name in composed.values
    ] + [
        f"{composed.settings[name].flag} means nothing with --mode aggregated, where no worker prefills only; "
        f"{composed.settings[instead].flag} is for the workers that do both halves"
        for name, instead in (("prefill", "decode"), ("prefill_pool_tokens", "decode_pool_tokens"))
        if name in composed.values
    ]


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.asynccontextmanager
async def _signals(numbers: Sequence[signal.Signals]) -> AsyncIterator[asyncio.Queue[signal.Signals]]:
    """Signals that ask to stop, in the order they come."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in numbers:
        loop.add_signal_handler(number, queue.put_nowait, number)
    try:
        yield queue
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _action(composed: Composed, parent_fd: int | None) -> int:
    return serve(composed)


command = SettingsCommand(
    "serve",
    SERVE,
    _action,
    EVERY_NAME,
    about="Serve a model: one router, prefill workers and decode workers on this machine.",
    short="Serve a model: router, prefill, decode.",
    positional="model",
    examples=(
        "quiesce serve",
        "quiesce serve ~/models/Qwen2.5-0.5B-Instruct --port 9000     # the same as --model",
        "quiesce serve --prefill 2 --decode 1 --decode-pool-tokens 65536",
        "quiesce serve --mode aggregated     # the same answers without a hand-off",
    ),
)
