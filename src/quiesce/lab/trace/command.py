"""`quiesce lab trace FILE...`: were the steps of these workers steps of the model that is proved?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from quiesce.lab.trace.breach import RULES
from quiesce.lab.trace.files import lines_of
from quiesce.lab.trace.journal import Journal
from quiesce.lab.trace.replay import MATCHED, Verdict, judge


@click.command(short_help="Replay what workers did against the model of the protocol.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--idle", is_flag=True, help="Nothing was under way when the files were written: judge their ends too.")
@click.pass_context
def command(ctx: click.Context, files: tuple[Path, ...], idle: bool) -> None:
    """Check trace lines of workers: bundles of `quiesce inspect --bundle`, files, or directories of *.txt files.

    Give the files of all workers together: then every message that one heard is looked for where it was said. Prints
    each line that breaks a rule, and exits with 1 if there is one.
    """
    verdict = judge(lines_of(list(files)), idle=idle)
    for text in report(verdict):
        click.echo(text)
    ctx.exit(1 if verdict.breaches else 0)


def report(verdict: Verdict) -> Iterator[str]:
    """What was looked at, what it shows, and what it does not."""
    yield from map(_journal, verdict.journals)
    yield f"actions: {_counted(verdict.actions)}"
    unmatched = {how: count for how, count in verdict.messages.items() if how != MATCHED}
    yield f"messages: {verdict.messages[MATCHED]} found where they were said" + "".join(
        f", {count} {how}" for how, count in sorted(unmatched.items())
    )
    yield from map(str, verdict.breaches)
    for rule in sorted(verdict.rules):
        yield f"  {rule}: {RULES[rule]}"
    count = len(verdict.breaches)
    yield "every step is one of the model's" if not count else f"{count} steps are none of the model's"


def _journal(journal: Journal) -> str:
    first, last = journal.lines[0], journal.lines[-1]
    files = ", ".join(dict.fromkeys(line.file for line in journal.lines))
    gaps = sum(journal.is_missing_before(at) for at in range(1, len(journal.lines)))
    known = "" if first.serial == 1 else ", what was before is not known"
    known += f", {gaps} gaps" if gaps else ""
    return f"{first.whose}: steps {first.serial} to {last.serial}{known} ({files})"


def _counted(actions: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(actions.items())) or "none"
