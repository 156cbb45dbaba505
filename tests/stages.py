"""What each room's tests may cost, and what they did: said at the end of a run. Over budget is a report, no failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

BUDGETS_S = {
    "api": 10,
    "audit": 95,
    "cli": 160,
    "control": 15,
    "doctor": 25,
    "engine": 85,
    "integrity": 5,
    "kv": 15,
    "lab": 670,
    "mutants": 5,
    "proof": 60,
    "protocol": 50,
    "router": 485,
    "telemetry": 25,
    "text": 15,
    "transport": 195,
    "worker": 245,
}
"""Seconds of the tests of a room, added up over processes. What does not fit belongs to `make nightly`."""

PROCESSES, MINUTES = 2, 18
"""All rooms together: so many minutes, with so many processes."""


def room_of(nodeid: str) -> str:
    """`lab` of `tests/lab/swarm/test_swarm.py::test_x`; "" for a test that belongs to no room."""
    parts = nodeid.split("::")[0].split("/")
    return parts[1] if len(parts) > 2 else ""


def spent_s(durations: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds by room, of each phase of each test."""
    spent: defaultdict[str, float] = defaultdict(float)
    for nodeid, seconds in durations:
        spent[room_of(nodeid)] += seconds
    return dict(spent)


def report(spent: dict[str, float]) -> list[str]:
    """A line for each room when all of them ran, else for those that are over their budget."""
    whole = spent.keys() >= BUDGETS_S.keys()
    rows = [(room, spent[room], budget_s) for room, budget_s in BUDGETS_S.items() if room in spent]
    lines = [_line(*row) for row in rows if whole or row[1] > row[2]]
    if whole:
        lines.append(_line("all", sum(spent.values()), PROCESSES * MINUTES * 60))
    return lines


def _line(room: str, seconds: float, budget_s: float) -> str:
    over = "  OVER BUDGET" if seconds > budget_s else ""
    return f"{room:<10} {seconds:>7.0f} s of {budget_s:>5.0f}{over}"
