"""Many seeds, one after the other or side by side, and what they saw together."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from quiesce.lab.swarm.marks import MARKS
from quiesce.lab.swarm.parameters import ANY, Way
from quiesce.lab.swarm.run import Outcome, Plan, plan_of, run
from quiesce.lab.swarm.without import mutant


class Order(msgspec.Struct, frozen=True):
    """One run of a campaign."""

    seed: int
    seconds: float
    trace: str = ""
    mutant: str = ""
    way: Way = ANY


class Totals:
    """What the runs so far saw. `failed` are those that broke a property."""

    def __init__(self) -> None:
        self.runs = self.events = 0
        self.cpu_s = self.simulated_s = 0.0
        self.marks: Counter[str] = Counter()
        self.looked: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.failed: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.events += outcome.events
        self.cpu_s += outcome.cpu_s
        self.simulated_s += outcome.simulated_s
        self.marks.update(outcome.marks)
        self.looked.update(outcome.looked)
        self.ends.update(outcome.ends)
        if outcome.violation:
            self.failed.append(outcome)

    def never(self) -> list[str]:
        """Marks that no run hit."""
        return [name for name in MARKS if not self.marks[name]]

    @property
    def events_per_s(self) -> float:
        """Per second of one core."""
        return self.events / self.cpu_s if self.cpu_s else 0.0


def planned(order: Order) -> Plan:
    """What it decides."""
    return plan_of(order.seed, order.seconds, Path(order.trace) if order.trace else None, order.way)


def carry_out(order: Order, now: Callable[[float], None] = lambda simulated_s: None) -> Outcome:
    """One run. Breakers that move are no news here: the router's log is silent meanwhile."""
    logging.getLogger("quiesce").setLevel(logging.CRITICAL)
    plan = planned(order)
    with mutant(order.mutant) as without:
        return run(plan, without=without, now=now)


def outcomes(orders: Sequence[Order], jobs: int, now: Callable[[float], None]) -> Iterator[Outcome]:
    """The outcome of each order, in order. `now` hears how far the run is that goes on here, if one does."""
    if jobs == 1 or len(orders) == 1:
        for order in orders:
            yield carry_out(order, now)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(carry_out, orders)
