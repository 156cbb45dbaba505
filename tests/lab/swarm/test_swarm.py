"""The simulator: fixed seeds break nothing, the same seed is the same run, and mutants are seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from quiesce.lab.swarm.campaign import Order, Totals, carry_out
from quiesce.lab.swarm.catches import CATCHES, UNSEEN, Catch
from quiesce.lab.swarm.faults import schedule
from quiesce.lab.swarm.parameters import ANY, Way, draw
from quiesce.lab.swarm.run import plan_of, run
from quiesce.lab.swarm.without import KNOWN
from quiesce.lab.swarm.workload import synthesize

SEEDS = (*range(30), 59, 60, 69, 76, 95, 97, 103)
"""The later ones draw what the first do not."""

SECONDS = 8.0
STRANGE = {
    "early ack ignored",
    "foreign message ignored",
    "message for an earlier life",
    "message from a dead life",
    "verification failed",
}
"""What no honest worker and no honest transport makes happen: each is drawn all the same."""

PULLED = {
    "ABORT of a loan sent again",
    "OFFER of what is over",
    "abort with reads in flight",
    "late read lands in held pages",
    "read is served early and lands late",
    "window revoked",
    "window taken back",
}
"""Where decode reads, these must happen among few seeds."""

LANDED = {
    "copy outlives its hand-off",
    "copy verified",
    "landing pages are short",
    "segment revoked",
}
"""Where writes land beside the pool, these must."""


def test_fixed_seeds_break_nothing() -> None:
    totals = Totals()
    for seed in SEEDS:
        totals.add(carry_out(Order(seed, SECONDS)))
    assert [(each.seed, each.violation, each.detail) for each in totals.failed] == []
    assert sum(totals.ends.values()) == sum(len(plan_of(seed, SECONDS).asks) for seed in SEEDS)
    assert [name for name, looked in totals.looked.items() if not looked] == []
    assert len(totals.never()) < 12
    assert set(totals.never()).isdisjoint(STRANGE | PULLED | LANDED)


@pytest.mark.parametrize(
    "order",
    [
        Order(56, 12.0, way=Way("pull")),  # a stalled worker hears of a request when all seemed to be quiet
        Order(258, 12.0, way=Way("push", "staged")),  # a worker's queue was full, and was empty when nobody looked
    ],
)
def test_the_end_is_not_called_too_early(order: Order) -> None:
    outcome = carry_out(order)
    assert (outcome.violation, outcome.detail) == ("", "")


@pytest.mark.parametrize("seed", range(6))
def test_a_way_changes_how_pages_come_and_nothing_else(seed: int) -> None:
    drawn, pulled, staged = (plan_of(seed, 5.0, way=way) for way in (ANY, Way("pull"), Way("push", "staged")))
    assert (pulled.parameters.transfer, pulled.parameters.landing) == ("pull", "direct")
    assert (staged.parameters.transfer, staged.parameters.landing) == ("push", "staged")
    assert drawn.asks == pulled.asks == staged.asks
    assert drawn.faults == pulled.faults == staged.faults
    told = {"transfer": drawn.parameters.transfer, "landing": drawn.parameters.landing}
    assert all(replace(each.parameters, **told) == drawn.parameters for each in (pulled, staged))


def test_one_seed_decides_everything() -> None:
    """In two processes with different hash seeds; and another seed is another run."""
    program = (
        "from quiesce.lab.swarm.campaign import Order, carry_out;"
        "print([(o.digest, o.events, o.struck) for o in (carry_out(Order(s, 6.0)) for s in (1, 5, 8))]);"
        "import sys; print('no engine is loaded' if 'torch' not in sys.modules else 'slow to start')"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1234")
    ]
    assert said[0] == said[1]
    assert said[0].endswith("no engine is loaded\n")
    assert len({carry_out(Order(seed, 3.0)).digest for seed in (1, 5, 8)}) == 3


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_what_is_drawn_is_drawn_again(seed: int) -> None:
    p = draw(seed)
    assert p == draw(seed)
    assert synthesize(p, 5.0) == synthesize(p, 5.0)
    assert schedule(p, 500.0) == tuple(sorted(schedule(p, 500.0)))
    assert 1 <= p.prefills <= 8
    assert 1 <= p.decodes <= 8
    assert p.prefill_ranks * p.decode_ranks <= 8


def test_telling_the_story_changes_nothing() -> None:
    plan = plan_of(8, 5.0)
    silent, told = run(plan), run(plan, tells=True)
    assert silent.digest == told.digest
    assert told.story
    assert not silent.story


@pytest.mark.parametrize("catch", CATCHES, ids=lambda each: str(each.mutant))
def test_a_mutant_is_seen(catch: Catch) -> None:
    outcome = carry_out(Order(catch.seed, catch.seconds, mutant=catch.mutant, way=catch.way))
    assert outcome.violation == catch.checker


def test_the_page_lists_what_is_seen() -> None:
    page = (Path(__file__).parents[3] / "docs" / "swarm.md").read_text(encoding="utf-8")
    assert [catch.mutant for catch in CATCHES if catch.row not in page] == []
    assert [name for name, why in UNSEEN.items() if f"| {name} | {why} |" not in page] == []
    assert {*UNSEEN, *(catch.mutant for catch in CATCHES)} <= set(KNOWN)
