"""`quiesce audit URL`: does this deployment leak?"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from prometheus_client import start_http_server
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from quiesce.audit.endpoint import Endpoint, Keys
from quiesce.audit.html_report import as_html
from quiesce.audit.junit import as_junit
from quiesce.audit.observation import MOST_TOKENS
from quiesce.audit.observation import Progress as Told
from quiesce.audit.options import FEWEST_VICTIMS, Options
from quiesce.audit.report import Report, as_json
from quiesce.audit.session import audit, audit_plan
from quiesce.audit.survey import advertised, measured
from quiesce.audit.text_report import as_text
from quiesce.audit.watch import Counts, Watch
from quiesce.cli.report import warn
from quiesce.cli.terminal import Terminal, tell
from quiesce.errors import MachineLacksError, UsageError

WARNING = (
    "--allow-aborts leaves requests in the middle, on purpose. On a server that leaks this can put other people's "
    "context into other people's answers. Use it on a staging copy that nobody else uses."
)
FORMS: Mapping[str, tuple[str, Callable[[Report], str]]] = {
    "text": ("audit.txt", as_text),
    "json": ("audit.json", as_json),
    "junit": ("audit.junit.xml", as_junit),
    "html": ("audit.html", as_html),
}
LINE_EVERY = 10
"""Requests between two lines of progress where there is no terminal; a stage begins with one."""
EXAMPLES = """\b
Examples:
  quiesce audit http://127.0.0.1:8000 --dry-run             what would be asked, and what it costs
  quiesce audit http://127.0.0.1:8000                       passive: nobody is harmed by it
  quiesce audit http://staging:8000 --allow-aborts          provoke the race; on a copy that nobody uses (--yes in CI)
  quiesce audit http://staging:8000 --bit-exact             the target promises equal bytes under any load
  QUIESCE_AUDIT_KEY=... quiesce audit https://api.example.com --model NAME --rate 2 --budget-tokens 200000
  quiesce audit URL --watch --metrics-port 9464             a few requests a minute, for ever, for Prometheus

\b
Exit codes: 0 no leak was seen, 1 a leak is suspected, 2 wrong usage, 4 the endpoint cannot be used
or the audit was stopped early (Ctrl-C, SIGTERM: what was seen until then is reported).
What it looks for, what it cannot see and how to read a report: docs/audit.md."""

_OWN = Options(seed=0)
_COUNT = click.IntRange(min=1)
_LENGTH = click.IntRange(1, MOST_TOKENS)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


Command = Callable[..., int]


def _options(function: Command) -> Command:
    """The command's options, last one first, as click wants them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _option(flag: str, name: str, help_: str, **more: Any) -> Callable[[Command], Command]:
    """An option whose default is that of `Options`, shown in --help."""
    return click.option(flag, name, default=getattr(_OWN, name), show_default=True, help=help_, **more)


_OPTIONS: list[Callable[[Command], Command]] = [
    click.option("--model", default="", help="The model to ask. Needed where the endpoint lists several, or none."),
    _option("--api", "api", "Which endpoint to ask.", type=click.Choice(["chat", "completions"])),
    click.option("--api-key-file", type=_FILE, help="A file with the API key. Else QUIESCE_AUDIT_KEY."),
    click.option(
        "--other-key-file",
        type=_FILE,
        help="A file with another tenant's key: are prefixes shared across tenants? Else QUIESCE_AUDIT_OTHER_KEY.",
    ),
    click.option("--allow-aborts", is_flag=True, help="Donors leave in the middle. For staging copies: see above."),
    click.option("--yes", is_flag=True, help="Begin --allow-aborts without asking; needed where there is no terminal."),
    click.option("--bit-exact", is_flag=True, help="The target promises equal bytes under any load."),
    click.option("--seed", type=int, help="What everything is drawn from. Default: a new one, which is shown."),
    _option("--victims", "victims", "Victims in each arm.", type=click.IntRange(min=FEWEST_VICTIMS)),
    _option("--answer-tokens", "answer_tokens", "Tokens of an answer.", type=_COUNT),
    _option("--donor-tokens", "donor_tokens", "Tokens, about, of a donor's prompt.", type=_COUNT),
    _option("--victim-tokens", "victim_tokens", "Tokens, about, of a victim's prompt.", type=_COUNT),
    _option("--tenant-probes", "tenant_probes", "Prefixes that are tried with two keys.", type=_COUNT),
    _option("--concurrency", "concurrency", "Requests at once.", type=click.IntRange(min=2)),
    _option("--rate", "rate_per_s", "Requests begun in a second; 0 is no limit.", type=click.FloatRange(min=0)),
    _option("--budget-tokens", "budget_tokens", "Tokens to use in all; the plan shrinks to fit.", type=_COUNT),
    _option("--max-requests", "max_requests", "Requests that may be made in all.", type=_COUNT),
    _option(
        "--timeout",
        "timeout_s",
        "Seconds to wait for an answer; up to 10 times that for long prompts.",
        type=click.FloatRange(min=0.1),
    ),
    _option("--pause", "pause_s", "Seconds without load between bursts.", type=click.FloatRange(min=0)),
    click.option("--context-tokens", type=_LENGTH, help="The context length, where the endpoint does not say it."),
    click.option(
        "--pool-tokens", type=_LENGTH, help="The KV pool of its prefill workers, if smaller than the context."
    ),
    click.option("--dry-run", is_flag=True, help="Show the plan and what it costs; ask for no answer."),
    click.option("--format", "form", type=click.Choice(list(FORMS)), default="text", help="What is printed."),
    click.option("--report-dir", type=click.Path(file_okay=False, path_type=Path), help="Write all formats there."),
    click.option("--watch", is_flag=True, help="Go on for ever at a low rate: passive, with metrics."),
    click.option(
        "--interval",
        "interval_s",
        type=click.FloatRange(min=0),
        default=60.0,
        show_default=True,
        help="Seconds between cycles of --watch.",
    ),
    click.option("--cycles", type=_COUNT, help="End --watch after so many cycles."),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        default=9464,
        show_default=True,
        help="Where --watch shows metrics, on 127.0.0.1.",
    ),
]


@click.command(short_help="Find out whether a deployment leaks one user's context to another.", epilog=EXAMPLES)
@click.argument("url")
@_options
def command(
    url: str,
    api_key_file: Path | None,
    other_key_file: Path | None,
    yes: bool,
    dry_run: bool,
    form: str,
    report_dir: Path | None,
    watch: bool,
    interval_s: float,
    cycles: int | None,
    metrics_port: int,
    **chosen: Any,
) -> int:
    """Does the deployment at URL (any OpenAI-compatible API) leak one user's context into another user's answer?

    Random markers are planted in prompts, and all answers are searched for those of others; greedy answers under
    load are compared with those given alone; prompts that cannot fit must be refused; what answers claim of
    themselves must be possible; with a second key, tenants must not share prefixes. It needs nothing of the
    server but its API.

    Without --allow-aborts nothing is done that users do not do. With it, donors of markers leave before, during
    and after their hand-off: on a vulnerable server that can corrupt other people's answers, so use a staging copy.
    """
    keys = Keys(_key(api_key_file, "QUIESCE_AUDIT_KEY"), _key(other_key_file, "QUIESCE_AUDIT_OTHER_KEY"))
    seed = secrets.randbelow(1 << 32) if chosen["seed"] is None else chosen["seed"]
    options = Options(**chosen | {"seed": seed, "two_keys": keys.are_two})
    if watch:
        return _watch(url, keys, options, interval_s, cycles, metrics_port)
    if dry_run:
        click.echo(asyncio.run(audit_plan(url, keys, options)), nl=False)
        return 0
    _warn(options, asks=not yes)
    report = _run(url, keys, options, _extra(api_key_file, other_key_file))
    if report_dir is not None:
        _write(report, report_dir)
    click.echo(FORMS[form][1](report), nl=False)
    return report.verdict.exit_code


def _key(file: Path | None, variable: str) -> str:
    """From the file or the environment; never from the command line, which everybody on the machine can read."""
    if file is None:
        return os.environ.get(variable, "").strip()
    try:
        key = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{file} cannot be read as a key.") from None
    if not key or not key.isprintable() or " " in key:
        raise UsageError(f"{file} holds no key.", remedy="One line, nothing else.")
    return key


def _warn(options: Options, *, asks: bool) -> None:
    if not options.allow_aborts:
        return
    warn(WARNING)
    if not asks:
        return
    if not sys.stdin.isatty():
        raise UsageError("--allow-aborts begins after a yes, and nobody is there to say it.", remedy="Say --yes.")
    click.confirm("Go on?", abort=True, err=True)


def _extra(first: Path | None, second: Path | None) -> str:
    named = (("--api-key-file", first), ("--other-key-file", second))
    return shlex.join(word for flag, file in named if file is not None for word in (flag, str(file)))


def _run(url: str, keys: Keys, options: Options, extra: str) -> Report:
    console = Terminal()
    tell(console, f"quiesce: seed {options.seed}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("looking", total=None)

        said = ("", 0)

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal said
            bar.update(task, description=stage, completed=done, total=total)
            now = (stage, done // LINE_EVERY)
            if now != said and not console.is_terminal:
                tell(console, f"quiesce: {stage}, request {done} of {total}")
            said = now

        return asyncio.run(_stoppable(url, keys, options, progress, extra))


async def _stoppable(url: str, keys: Keys, options: Options, progress: Told, extra: str) -> Report:
    """Once there is something to report, a signal ends the asking and not the report."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()

    def told(stage: str, done: int, total: int) -> None:
        progress(stage, done, total)
        if done == 1:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stopping.set)

    return await audit(url, keys, options, told, extra, stopping)


def _write(report: Report, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, show in FORMS.values():
            (directory / name).write_text(show(report), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--report-dir {directory} cannot be written ({error.strerror}).") from None


# ---------------------------------------------------------------- --watch


def _watch(url: str, keys: Keys, options: Options, interval_s: float, cycles: int | None, port: int) -> int:
    if options.allow_aborts:
        raise UsageError("--watch is for deployments in use, and passive: it goes without --allow-aborts.")
    return asyncio.run(_watching(url, keys, options, interval_s, cycles, port))


async def _watching(url: str, keys: Keys, options: Options, interval_s: float, cycles: int | None, port: int) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with Endpoint(url, keys, options) as endpoint:
        target = await measured(endpoint, options, await advertised(endpoint, options))
        counts = Counts()
        watching = Watch(endpoint, target, options, counts)
        server = _serve_metrics(counts, port)
        try:
            await _cycles(watching, interval_s, cycles, stopping)
        finally:
            server()
    return 1 if watching.suspected else 0


async def _cycles(watching: Watch, interval_s: float, cycles: int | None, stopping: asyncio.Event) -> None:
    console, said = Terminal(), False
    while not stopping.is_set() and (cycles is None or watching.cycles < cycles):
        await watching.cycle()
        if watching.suspected and not said:
            said = True
            tell(console, "quiesce: a leak is suspected; run a whole audit on a staging copy (quiesce audit --help)")
        try:
            async with asyncio.timeout(interval_s if watching.cycles != cycles else 0):
                await stopping.wait()
        except TimeoutError:
            continue


def _serve_metrics(counts: Counts, port: int) -> Callable[[], None]:
    """Serve /metrics on the loopback device; what ends it."""
    try:
        server, thread = start_http_server(port, "127.0.0.1", counts.registry)
    except OSError as error:
        raise MachineLacksError(
            f"127.0.0.1:{port} cannot be listened on ({error.strerror}); see --metrics-port."
        ) from None
    tell(Terminal(), f"quiesce: metrics on http://127.0.0.1:{server.server_port}/metrics")

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
