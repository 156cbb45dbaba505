"""Runs from the start, found in small universes: that actions happen at all, and where a missing rule leads.

A proof by induction says what never happens. It says nothing if nothing can happen, and a broken obligation alone is no
leak. So both are shown by runs: a list of actions that Z3 fits together from the very start.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import z3

from proof.logic import Formula, State, Step, Term, predicate, universe
from proof.model import Model, Run


@dataclass(frozen=True)
class Found:
    """A run that is possible: each action with whom it is about."""

    steps: tuple[str, ...]


def replay(model: Model, run: Run) -> Found | None:
    """Fit the run's actions together, ending in the violation if it names one; None if that is impossible."""
    elements = _elements(model, run.sizes)
    solver = z3.Solver()
    with universe(elements):
        state, assumption = model.start()
        solver.add(assumption, *_is_closed(model, elements))
        for number, name in enumerate(run.names):
            state = _take(solver, model, state, number, name, elements)
        goal = ~model.invariants[run.violates](state) if run.violates else _all_hold(model, state)
        solver.add(goal)
    if solver.check() != z3.sat:
        return None
    return _explain(model, run, elements, solver.model())


def breaks(model: Model, obligation: str, sizes: Mapping[str, int]) -> bool:
    """There is a small state in which all invariants hold, and after which the obligation's invariant does not."""
    action, invariant = obligation.split(" / ")
    elements = _elements(model, sizes)
    solver = z3.Solver()
    with universe(elements):
        before = model.any_state
        solver.add(_all_hold(model, before), *_is_closed(model, elements))
        after = _take(solver, model, before, 0, action, elements)
        solver.add(~model.invariants[invariant](after))
    return bool(solver.check() == z3.sat)


def _all_hold(model: Model, state: State) -> Formula:
    return z3.And(*(each(state) for each in model.invariants.values()))


def _elements(model: Model, sizes: Mapping[str, int]) -> dict[str, list[Term]]:
    """The elements of every sort: `write1`, `write2`, ..."""
    wanted = {**model.sizes, **sizes}
    return {
        name: [z3.Const(f"{name.lower()}{n + 1}", model.sorts[name]) for n in range(wanted[name])]
        for name in model.sorts
    }


def _is_closed(model: Model, elements: Mapping[str, Sequence[Term]]) -> list[Formula]:
    """The elements are distinct, and every function's value is one of them."""
    distinct = [z3.Distinct(*terms) for terms in elements.values() if len(terms) > 1]
    functions = [each for each in model.functions if each.range() != z3.BoolSort()]
    closed = [
        _is_one_of(each(*terms), elements[str(each.range())])
        for each in functions
        for terms in itertools.product(*(elements[str(each.domain(n))] for n in range(each.arity())))
    ]
    return distinct + closed


def _is_one_of(term: Term, elements: Sequence[Term]) -> Formula:
    return z3.Or(*(term == each for each in elements))


def _take(
    solver: z3.Solver, model: Model, state: State, number: int, name: str, elements: Mapping[str, Sequence[Term]]
) -> State:
    """One action: its guard holds, and each relation that it changes gets a symbol of its own for the state after."""
    taken: Step = model.possible[name](state, model.rules)
    mine = [(each, _at(each, number)) for each in model.parameters]
    solver.add(z3.substitute(taken.guard, *mine))
    solver.add(*(_is_one_of(constant, elements[str(constant.sort())]) for _, constant in mine))
    sorts = type(state).declared()
    values = dict(state.values)
    for change in taken.changes:
        after = predicate(f"{change.relation}@{number}", *sorts[change.relation])
        for terms in itertools.product(*(elements[str(each)] for each in sorts[change.relation])):
            solver.add(after(*terms) == z3.substitute(change.value(*terms), *mine))
        values[change.relation] = after
    return type(state)(values)


def _at(parameter: Term, number: int) -> Term:
    return z3.Const(f"{parameter}@{number}", parameter.sort())


def _explain(model: Model, run: Run, elements: Mapping[str, Sequence[Term]], found: z3.ModelRef) -> Found:
    """Each action with the elements that it is about, by the names of its parameters."""
    names = {
        found.eval(each, model_completion=True).sexpr(): str(each) for terms in elements.values() for each in terms
    }

    def shown(number: int, action: str) -> str:
        about = [found.eval(_at(each, number), model_completion=True).sexpr() for each in parameters_of(model, action)]
        return f"{action}({', '.join(names[each] for each in about)})"

    return Found(tuple(shown(number, action) for number, action in enumerate(run.names)))


def parameters_of(model: Model, action: str) -> list[Term]:
    """What an action speaks about: the parameters that occur in its guard or its changes."""
    text = model.text(action)
    return [each for each in model.parameters if not z3.substitute(text, (each, _at(each, -1))).eq(text)]
