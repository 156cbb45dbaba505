"""What the explorer finds, as a file that tells it again."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce.lab.explorer.config import TWIN, A, B, config
from quiesce.lab.explorer.search import explore, walk
from quiesce.lab.patches import patched
from quiesce.lab.scenario import write
from quiesce.lab.scenario.format import parse, printed
from quiesce.lab.scenario.record import recorded
from quiesce.lab.scenario.replay import replayed
from quiesce.protocol import sender_rules
from quiesce.protocol.record import Record


def ack_too_soon(record: Record) -> bool:
    return record.abort_heard


PATCHES = ((sender_rules, "may_ack", ack_too_soon),)
WORLD = config(requests=(A,), abort=1)


def test_a_trace_becomes_a_file_whose_end_shows_what_is_broken() -> None:
    with patched(*PATCHES):
        found = explore(WORLD)
    scenario = recorded(
        WORLD, found.trace, found.violation, title="T", rule="4", without="acks come too soon", patches=PATCHES
    )
    last = scenario.course.steps[-1]
    assert last.command == "expect no_early_ack broken"
    assert "no_early_ack broken" in scenario.course.steps[-2].outcome[-1]
    assert scenario.kept is not None
    assert scenario.kept.steps[-2].command == "expect nothing broken"
    assert parse(printed(scenario)) == scenario
    assert replayed(scenario, PATCHES) == scenario


def test_a_world_that_leaves_something_out_needs_no_mutant() -> None:
    world = config(abort=1, clock=1, unsafe=True)
    found = explore(world)
    text = write(world, found.trace, found.violation)
    assert "unsafe: yes\n" in text
    assert "> expect no_wild_write broken\n" in text
    assert "=== with the rule" in text


def test_a_violation_after_healing_is_told_by_healing() -> None:
    held = recorded(WORLD, [], "no_leak: something (healed)", title="T")
    assert held.course.steps[-1].command == "heal"
    assert held.kept is None


EVERYTHING = dict.fromkeys(
    ("abort", "ended", "cancel", "loss", "copy", "fail", "quiesced", "torn", "cut", "crash_p", "crash_d", "close"), 1
)
SIZES: tuple[dict[str, Any], ...] = (
    {"pages": 2},
    {"pages": 2, "fence": True, "staged": True},
    {"pages": 2, "prefills": 2, "ranks": 2, "again": True},
    {"pages": 3, "lease_pages": 2, "cache": True},
    {"pages": 4, "lease_pages": 2, "chunks": 2, "batch": 1, "window": 1},
)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_any_trace_is_told_and_read_back(size: dict[str, Any], seed: int) -> None:
    """Whatever happens in a world has a command, which means that and nothing else."""
    world = config(requests=(A, B, TWIN), **size, **EVERYTHING, clock=4, resend=2, beat=2)
    scenario = recorded(world, walk(world, seed, 60).trace, "", title="T")
    assert len(scenario.course.steps) > 20
    assert replayed(parse(printed(scenario)), ()) == scenario
