"""`quiesce lab swarm`: simulated clusters of the shipping machines under faults, decided by seeds."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from quiesce.errors import UsageError
from quiesce.lab.swarm import file
from quiesce.lab.swarm.campaign import Order, Totals, outcomes, planned
from quiesce.lab.swarm.marks import MARKS
from quiesce.lab.swarm.parameters import Way
from quiesce.lab.swarm.replay import replay
from quiesce.lab.swarm.run import EXCLUDED, Outcome, run
from quiesce.lab.swarm.shrink import Shrinker
from quiesce.lab.swarm.without import KNOWN
from quiesce.lab.swarm.without import mutant as mutant_named

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Simulate clusters under faults, decided by a seed, and check every property.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--seconds", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Simulated, each run.")
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="Seeds, from --seed on.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--trace", type=_EXISTING, metavar="FILE", help="Requests from a trace in Mooncake's format.")
@click.option("--transfer", type=click.Choice(["push", "pull"]), help="Instead of what each seed decides.")
@click.option("--landing", type=click.Choice(["direct", "staged"]), help="The same, for what is pushed.")
@click.option("--mutant", default="", metavar="NAME", help="Run a known-wrong variant of the machines.")
@click.option("--mutants", is_flag=True, help="List the mutants and end.")
@click.option("--replay", "replayed", type=_EXISTING, metavar="FILE", help="Run a file of the simulator once more.")
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE", help="Where the shrunk failure goes.")
@click.option("--format", "shown", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(
    ctx: click.Context,
    seed: int,
    seconds: float,
    runs: int,
    jobs: int,
    trace: Path | None,
    transfer: Literal["push", "pull"] | None,
    landing: Literal["direct", "staged"] | None,
    mutant: str,
    mutants: bool,
    replayed: Path | None,
    write: Path | None,
    shown: str,
) -> None:
    """Run simulated clusters: production machines, page allocators and prefix caches under simulated time, network,
    memory and processes. One seed decides everything. After --seconds of faults all is healed, and every page must
    come back, every request end.

    Exits with 1 when a property is broken; the failure is made small and written to a file that replays it. With
    --mutant the other way round: something must break, and 1 says that the mutant was not seen.
    """
    if mutants:
        click.echo("\n".join(KNOWN))
        return
    if replayed is not None:
        ctx.exit(replay(replayed))
    with mutant_named(mutant):
        pass  # that there is one
    if transfer == "pull" and landing == "staged":
        raise UsageError("--landing staged with --transfer pull: there nobody but decode writes to its memory.")
    way = Way(transfer or "", landing or "")
    orders = [Order(each, seconds, str(trace or ""), mutant, way) for each in range(seed, seed + runs)]
    totals = _carried_out(orders, jobs, quiet=shown == "json")
    written = _shrunk(orders, totals.failed[0], write) if totals.failed else None
    if shown == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(_record(orders, totals, written))).decode())
    else:
        _tell(orders, totals, written)
    ctx.exit(int(bool(totals.failed) is not bool(mutant)))


def _carried_out(orders: list[Order], jobs: int, *, quiet: bool) -> Totals:
    totals = Totals()
    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        seconds = orders[0].seconds
        task = progress.add_task("swarm", total=seconds * len(orders))

        def now(simulated_s: float) -> None:
            progress.update(task, completed=totals.runs * seconds + min(seconds, simulated_s))

        for outcome in outcomes(orders, jobs, now):
            totals.add(outcome)
            progress.update(task, completed=totals.runs * seconds, description=f"seed {outcome.seed}")
            if outcome.violation:
                break
    return totals


def _shrunk(orders: list[Order], found: Outcome, write: Path | None) -> Path:
    """Make a failure small, run it once more with its story, and write that down."""
    order = next(each for each in orders if each.seed == found.seed)
    plan = planned(order)
    console = Console(stderr=True)
    with mutant_named(order.mutant) as without, console.status("shrinking") as status:
        shrinker = Shrinker(plan, found, without, status.update)
        small = shrinker.shrink()
        outcome = run(small, without=without, tells=True)
    remark = (
        f"Made smaller in {shrinker.runs} runs: {len(small.asks)} of {len(plan.asks)} requests, "
        f"{len(small.faults)} of {len(plan.faults)} faults, {len(small.told or ())} of {len(found.struck)} fates."
    )
    path = write or Path(f"swarm-{outcome.violation}-{found.seed}.txt")
    path.write_text(file.written(small, outcome, order.mutant, remark), encoding="utf-8")
    return path


# ---------------------------------------------------------------- what is said


def _tell(orders: list[Order], totals: Totals, written: Path | None) -> None:
    if len(orders) == 1 or totals.failed:
        _tell_parameters(_failed(orders, totals) if totals.failed else orders[0])
    click.echo(_figures(totals))
    click.echo(f"requests ended: {_counted(totals.ends.most_common())}")
    click.echo(f"looked: {_counted(totals.looked.items())}")
    click.echo(f"marks hit: {_counted(sorted((n, c) for n, c in totals.marks.items() if c))}")
    if never := totals.never():
        click.echo("\n  ".join([f"NEVER EXERCISED ({len(never)} of {len(MARKS)} marks):", *never]))
    click.echo("not in any run: " + "; ".join(EXCLUDED))
    for outcome in totals.failed:
        click.echo(f"VIOLATION, seed {outcome.seed}, {outcome.at_s:.6f} s: {outcome.violation}: {outcome.detail}")
    if orders[0].mutant and not totals.failed:
        click.echo(f"the mutant was not seen; try --runs {max(30, 3 * len(orders))}")
    click.echo(f"again: {_again(orders, totals)}")
    if written is not None:
        click.echo(f"small: quiesce lab swarm --replay {written}")


def _failed(orders: list[Order], totals: Totals) -> Order:
    return next(each for each in orders if each.seed == totals.failed[0].seed)


def _tell_parameters(order: Order) -> None:
    p = planned(order).parameters
    said = [f"{name}={getattr(p, name)}" for name in p.__struct_fields__]
    click.echo(f"drawn: {' '.join(said)}")


def _figures(totals: Totals) -> str:
    return (
        f"{totals.runs} runs, {totals.simulated_s:,.0f} simulated seconds, {totals.events:,} events in "
        f"{totals.cpu_s:,.1f} s of one core: {totals.events_per_s:,.0f} events/s"
    )


def _counted(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in pairs) or "nothing"


def _again(orders: list[Order], totals: Totals) -> str:
    order, runs = orders[0], len(orders)
    if totals.failed:
        order, runs = _failed(orders, totals), 1
    words = ["quiesce lab swarm", f"--seed {order.seed}", f"--seconds {order.seconds:g}"]
    words += [f"--runs {runs}"] if runs > 1 else []
    words += [f"--trace {order.trace}"] if order.trace else []
    words += order.way.words()
    words += [f'--mutant "{order.mutant}"'] if order.mutant else []
    return " ".join(words)


def _record(orders: list[Order], totals: Totals, written: Path | None) -> dict[str, object]:
    return {
        "runs": totals.runs,
        "events": totals.events,
        "cpu_s": totals.cpu_s,
        "events_per_s": totals.events_per_s,
        "simulated_s": totals.simulated_s,
        "parameters": [msgspec.to_builtins(planned(order).parameters) for order in orders[: totals.runs]],
        "ends": dict(totals.ends),
        "looked": dict(totals.looked),
        "marks": dict(totals.marks),
        "never_exercised": totals.never(),
        "excluded": list(EXCLUDED),
        "violations": [msgspec.to_builtins(outcome) for outcome in totals.failed],
        "file": None if written is None else str(written),
        "again": _again(orders, totals),
        "python": sys.version.split()[0],
    }
