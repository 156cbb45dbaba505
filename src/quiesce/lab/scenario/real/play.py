"""A scenario told by real worker processes, without the rule and with it; what the last request's user reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import click
import msgspec

from quiesce.errors import UsageError
from quiesce.lab.client import Answer
from quiesce.lab.mutants.registry import BY_NAME
from quiesce.lab.patches import patched
from quiesce.lab.scenario.file import read
from quiesce.lab.scenario.format import Scenario, Step
from quiesce.lab.scenario.real.course import RealCourse
from quiesce.lab.scenario.real.refusal import refusals
from quiesce.lab.scenario.real.stage import OTHERS, Stage
from quiesce.lab.scenario.replay import Story, in_place


class Told(msgspec.Struct):
    """What came of one course. `shared`: two requests had a page in common. `leaks`: the world says read_own broken."""

    solo: Answer
    answer: Answer | None
    shared: bool
    leaks: bool

    @property
    def intact(self) -> bool:
        """Nobody read anything, or the answer is byte for byte what it is when asked alone."""
        return self.answer is None or (self.answer.text == self.solo.text and not self.answer.error)

    @property
    def is_as_told(self) -> bool:
        return self.intact is not self.leaks


Teller = Callable[[str], None]
UNSAFE = ("--unsafe-release-on-timeout",)


async def play(scenario: Scenario, stage: Stage, tell: Teller = lambda line: None) -> Told:
    """The first course. `tell` hears each command. Raises PeerUnusable where the processes leave the story."""
    return await _course(scenario, stage, scenario.course.steps, tell, kept=False)


async def play_kept(scenario: Scenario, stage: Stage, tell: Teller = lambda line: None) -> Told | None:
    """The second course, if there is one, with every rule in place."""
    if scenario.kept is None:
        return None
    steps = (*scenario.course.steps[: scenario.kept.same], *scenario.kept.steps)
    return await _course(scenario, stage, steps, tell, kept=True)


async def _course(scenario: Scenario, stage: Stage, steps: Iterable[Step], tell: Teller, *, kept: bool) -> Told:
    mutant = "" if kept else scenario.without
    config = in_place(scenario.config) if kept else scenario.config
    tell(f"without: {mutant}" if mutant else "as shipped")
    if len(config.requests) == 1:
        await stage.client.ask(OTHERS)  # somebody was here before, and left a context in the pages
    await stage.arm(mutant)
    with patched(*(BY_NAME[mutant].patches if mutant else ())):
        course = RealCourse(stage, Story(config))
        try:
            for step in steps:
                tell(step.command)
                await course.tell(step)
        finally:
            answer = await course.end()
    leaks = any(line.startswith("read_own broken") for step in steps for line in step.outcome)
    return Told(stage.solo, answer, course.shared_pages(), leaks)


def run_real(path: Path, *flags: str) -> int:
    """`quiesce lab run FILE --real`; 1 when the processes do otherwise than told. Raises UsageError for a scenario that
    real processes cannot tell.
    """
    scenario = read(path)
    if why := refusals(scenario):
        raise UsageError(f"{path.name} cannot be told by real processes: {'; '.join(why)}.")
    return asyncio.run(_run(scenario, path.name, flags))


async def _run(scenario: Scenario, name: str, flags: Iterable[str]) -> int:
    def tell(line: str) -> None:
        click.echo(f"  > {line}")

    click.echo(f"{name}: {scenario.title}; starting a prefill and a decode worker")
    unsafe = UNSAFE if scenario.config.unsafe else ()
    async with Stage(*flags, *unsafe) as stage:
        first = await play(scenario, stage, tell)
        another = bool(unsafe or stage.spoilt)
        kept = None if another else await play_kept(scenario, stage, tell)
    if another and scenario.kept is not None:
        async with Stage(*flags) as stage:
            kept = await play_kept(scenario, stage, tell)
    click.echo(f"  asked alone         {first.solo.text!r}")
    good = _show("without the rule" if scenario.kept is not None else "as shipped", first)
    if kept is not None:
        good &= _show("with the rule", kept)
    return 0 if good else 1


def _show(title: str, told: Told) -> bool:
    first, *more = told_lines(told)
    click.echo(f"  {title:18}  {first}")
    for line in more:
        click.echo(f"  {'':18}  {line}")
    return told.is_as_told


def told_lines(told: Told) -> list[str]:
    """What the last one's user reads, and how that is."""
    answer, pages = told.answer, "in pages of somebody else"
    if answer is None:
        return ["nobody reads an answer", *([pages] if told.shared else [])]
    alone = "as when asked alone" if told.intact else "NOT as when asked alone"
    return [
        repr(answer.text) + (answer.error and f", {answer.error}"),
        f"{alone}, {pages}" if told.shared else alone,
    ]
