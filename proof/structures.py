"""Is a formula true in a given state? The same invariants that are proved, evaluated on states of the real machines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from proof.logic import Formula, Term
from proof.model import Model

Meaning = Callable[["Structure", tuple[Any, ...]], Any]
"""(structure, values of the variables that are bound here) -> the value of a term, or whether a formula is true."""


@dataclass(frozen=True)
class Structure:
    """Everything there is in one state, by the names of the model; elements may be anything that is hashable."""

    elements: Mapping[str, Sequence[Any]]
    functions: Mapping[str, Mapping[tuple[Any, ...], Any]]
    relations: Mapping[str, frozenset[tuple[Any, ...]]]


def violated(invariants: Mapping[str, Meaning], structure: Structure) -> list[str]:
    """The names of the invariants that are false."""
    return [name for name, holds in invariants.items() if not holds(structure, ())]


def meanings(model: Model) -> dict[str, Meaning]:
    """The model's invariants as functions of a structure."""
    return {name: meaning(each(model.any_state)) for name, each in model.invariants.items()}


def meaning(formula: Formula | Term) -> Meaning:
    """A closed formula, or a part of one, as a function. Raises KeyError for an operator that no model uses."""
    if z3.is_quantifier(formula):
        return _quantified(formula)
    if z3.is_var(formula):
        position = -1 - z3.get_var_index(formula)
        return lambda _, bound: bound[position]
    parts = [meaning(each) for each in formula.children()]
    if formula.decl().kind() == z3.Z3_OP_UNINTERPRETED:
        return _looked_up(formula, parts)
    return OPERATORS[formula.decl().kind()](*parts)


def _quantified(formula: Formula) -> Meaning:
    sorts = [str(formula.var_sort(n)) for n in range(formula.num_vars())]
    body = meaning(formula.body())
    combine = all if formula.is_forall() else any

    def over(structure: Structure, bound: tuple[Any, ...]) -> bool:
        choices = itertools.product(*(structure.elements[each] for each in sorts))
        return combine(body(structure, bound + chosen) for chosen in choices)

    return over


def _looked_up(formula: Term, parts: list[Meaning]) -> Meaning:
    name = formula.decl().name()
    if formula.sort() == z3.BoolSort():
        return lambda structure, bound: tuple(part(structure, bound) for part in parts) in structure.relations[name]
    return lambda structure, bound: structure.functions[name][tuple(part(structure, bound) for part in parts)]


def _all(*parts: Meaning) -> Meaning:
    return lambda structure, bound: all(part(structure, bound) for part in parts)


def _any(*parts: Meaning) -> Meaning:
    return lambda structure, bound: any(part(structure, bound) for part in parts)


def _not(part: Meaning) -> Meaning:
    return lambda structure, bound: not part(structure, bound)


def _implies(premise: Meaning, conclusion: Meaning) -> Meaning:
    return lambda structure, bound: not premise(structure, bound) or conclusion(structure, bound)


def _equal(left: Meaning, right: Meaning) -> Meaning:
    return lambda structure, bound: left(structure, bound) == right(structure, bound)


def _either(condition: Meaning, yes: Meaning, no: Meaning) -> Meaning:
    return lambda structure, bound: (yes if condition(structure, bound) else no)(structure, bound)


OPERATORS: Mapping[int, Callable[..., Meaning]] = {
    z3.Z3_OP_TRUE: lambda: lambda _, __: True,
    z3.Z3_OP_FALSE: lambda: lambda _, __: False,
    z3.Z3_OP_AND: _all,
    z3.Z3_OP_OR: _any,
    z3.Z3_OP_NOT: _not,
    z3.Z3_OP_IMPLIES: _implies,
    z3.Z3_OP_EQ: _equal,
    z3.Z3_OP_ITE: _either,
}
