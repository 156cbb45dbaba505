"""Induction: every invariant holds at the start, and every action keeps every invariant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import z3

from proof.logic import Formula, State, Term, Value
from proof.model import Invariant, Model

START = "start"
TIMEOUT_MS = 60_000
"""Each obligation takes a few milliseconds; this is for a machine under load."""


@dataclass(frozen=True)
class Obligation:
    """`action / invariant`, and whether the solver proved it."""

    action: str
    invariant: str
    proved: bool
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.action} / {self.invariant}"


@dataclass(frozen=True)
class Task:
    """Everything about one action: what may be assumed, and per invariant what must follow."""

    action: str
    assumed: tuple[Formula, ...]
    goals: dict[str, Formula]


def task(model: Model, action: str) -> Task:
    """The obligations of one action, or of `START`."""
    if action == START:
        first, assumption = model.start()
        return Task(START, (assumption,), {name: each(first) for name, each in model.invariants.items()})
    taken = model.possible[action](model.any_state, model.rules)
    after = model.any_state.after(taken)
    changed = {change.relation for change in taken.changes}
    goals = {name: _goal(model, each, after, changed) for name, each in model.invariants.items()}
    assumed = (_assumed(each, model.any_state)[0] for each in model.invariants.values())
    return Task(action, (*assumed, taken.guard), goals)


def _goal(model: Model, invariant: Invariant, after: State, changed: set[str]) -> Formula:
    """An invariant that reads nothing that changes is asked about all the same: its goal is what was assumed."""
    formula, reads = _assumed(invariant, model.any_state)
    return invariant(after) if reads & changed else formula


@cache
def _assumed(invariant: Invariant, before: State) -> tuple[Formula, frozenset[str]]:
    """An invariant of the state before, and the relations that it reads."""
    seen: set[str] = set()

    def watched(name: str, value: Value) -> Value:
        def look(*terms: Term) -> Formula:
            seen.add(name)
            return value(*terms)

        return look

    formula = invariant(type(before)({name: watched(name, value) for name, value in before.values.items()}))
    return formula, frozenset(seen)


def prove(work: Task, only: Sequence[str] = ()) -> list[Obligation]:
    """Z3 on one task, or on some of its invariants."""
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(*work.assumed)
    return [_prove(solver, work.action, name, goal) for name, goal in work.goals.items() if not only or name in only]


def _prove(solver: z3.Solver, action: str, invariant: str, goal: Formula) -> Obligation:
    began = time.perf_counter()
    solver.push()
    solver.add(~goal)
    proved = solver.check() == z3.unsat
    solver.pop()
    return Obligation(action, invariant, proved, time.perf_counter() - began)
