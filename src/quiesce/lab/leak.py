"""`python -m quiesce.lab.leak`: the leak with a real model, before and after. Two users; one of them leaves too early.

Before: pages are given away when 0.2 s have passed, as other systems do. After: on proof only.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from quiesce.errors import QuiesceError
from quiesce.lab.cluster import Cluster
from quiesce.lab.race import SAFE, UNSAFE, RaceReport, race
from quiesce.protocol.dispatch import PageRange

FLAGS = (
    *("--deterministic", "--prefill", "2", "--decode-pool-tokens", "2048", "--context-length", "1024"),
    *("--prefix-cache", "off"),  # the victim asks twice, and would not need new pages the second time
)


def _question(content: str, max_tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": max_tokens, "temperature": 0}


DONOR = _question(
    "The patient's name is Maria Lopez and her diagnosis is diabetes. " * 12 + "Repeat what you know of Maria Lopez.",
    32,
)
VICTIM = _question("I live in a small village by the sea. " * 12 + "Tell me how rain forms, step by step.", 64)


class Arm(msgspec.Struct, frozen=True):
    """One way to run the race. `held` and `stamp` are `race`'s."""

    title: str
    flags: tuple[str, ...]
    held: bool
    stamp: bool


BEFORE = Arm("Before: pages are given away when 0.2 s have passed", UNSAFE, held=False, stamp=False)
CANARY = Arm("The same, but the late write has stamped its tags too", UNSAFE, held=False, stamp=True)
AFTER = Arm("After: pages are given away on proof", SAFE, held=True, stamp=True)


async def run_arm(arm: Arm, *flags: str, environ: Mapping[str, str] | None = None) -> RaceReport:
    """Start two prefill workers and one decode worker, and run the race once."""
    (report,) = await run_arms(arm, flags=flags, environ=environ)
    return report


async def run_arms(*arms: Arm, flags: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> list[RaceReport]:
    """The same for arms that want the same flags: one after the other, with the same workers."""
    async with Cluster(*FLAGS, *arms[0].flags, *flags, environ=environ) as cluster:
        return [await race(cluster, DONOR, VICTIM, held=arm.held, stamp=arm.stamp) for arm in arms]


def is_as_promised(arm: Arm, report: RaceReport) -> bool:
    """Unsafe pages garble the answer; tags, when they landed, end it; proofs keep it whole."""
    if arm is AFTER:
        return report.intact and not report.unsafe
    return not report.intact and bool(report.victim.error) is arm.stamp


def _show(console: Console, arm: Arm, report: RaceReport) -> None:
    console.print(
        Panel(Text(report.victim.text), title=arm.title, subtitle="the victim's answer", subtitle_align="left")
    )
    console.print(f"  pages of the user who left  {_ranges(report.donor_pages)}")
    console.print(f"  pages of the victim         {_ranges(report.victim_pages)}")
    console.print(f"  as when asked alone         {'yes' if report.intact else 'NO'}")
    console.print(f"  released                    {report.drained} drained, {report.unsafe} without proof")
    if report.victim.error:
        console.print(Text(f"  ended by                    {report.victim.error}"))
    console.print()


def _ranges(ranges: tuple[PageRange, ...]) -> str:
    return ", ".join(rf"\[{each.first}..{each.last}]" for each in ranges) or "none"


async def _main(flags: list[str]) -> int:
    console = Console(highlight=False)
    kept = True
    arms = (BEFORE, CANARY, AFTER)
    for number, arm in enumerate(arms, 1):
        doing = f"{number}/{len(arms)} {arm.title}: two prefill workers and one decode worker start, and two users ask"
        if not console.is_terminal:  # where nothing can turn, a line tells that it goes on
            console.print(doing)
        with console.status(doing):
            report = await run_arm(arm, *flags)
        _show(console, arm, report)
        kept &= is_as_promised(arm, report)
    return 0 if kept else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(_main(sys.argv[1:])))
    except QuiesceError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
