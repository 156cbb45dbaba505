"""What `quiesce check` says: a line for each world, a trace for each violation, the sum."""

from __future__ import annotations

import json
from collections.abc import Iterable

from quiesce.lab.check.job import Found
from quiesce.units import show_bytes

HEAD = f"{'states':>10} {'transitions':>12} {'depth':>6} {'seconds':>8} {'memory':>8} {'a second':>9}  world"


def line(found: Found) -> str:
    """One world as a line under HEAD."""
    rate = found.transitions / max(found.seconds, 1e-9)
    counts = f"{found.states:>10,} {found.transitions:>12,} {found.depth:>6} {found.seconds:>8.1f}"
    verdict = "  VIOLATION" if found.violation else ""
    return f"{counts} {show_bytes(found.memory_bytes):>8} {rate:>9,.0f}  {found.world}{verdict}"


def story(found: Found) -> str:
    """A violation and the shortest way there, a move a line."""
    moves = (f"  {number:>3}. {move}" for number, move in enumerate(found.trace, 1))
    return "\n".join([f"{found.world}: {found.violation}", *moves])


def total(found: Iterable[Found], seconds: float) -> str:
    every = list(found)
    states, transitions = sum(each.states for each in every), sum(each.transitions for each in every)
    wrong = sum(bool(each.violation) for each in every)
    verdict = f"{wrong} WITH A VIOLATION" if wrong else "every state of each is right, and comes to rest"
    of_core = sum(each.seconds for each in every)
    rate = transitions / max(seconds, 1e-9)
    return (
        f"{len(every)} worlds, {states:,} states, {transitions:,} transitions in {seconds:.1f} s "
        f"({rate:,.0f} a second; {of_core:.1f} s of one core): {verdict}"
    )


def as_json(found: Iterable[Found], seconds: float) -> str:
    """All of it as one JSON object."""
    worlds = [
        {
            "world": each.world,
            "violation": each.violation,
            "trace": [str(move) for move in each.trace],
            "states": each.states,
            "transitions": each.transitions,
            "depth": each.depth,
            "seconds": round(each.seconds, 3),
            "memory_bytes": each.memory_bytes,
        }
        for each in found
    ]
    return json.dumps({"seconds": round(seconds, 3), "worlds": worlds}, indent=2)
