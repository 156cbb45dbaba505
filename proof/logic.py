"""First-order logic for protocol models: relations that change, steps that change them, and quantifiers.

A model's state is a set of relations over uninterpreted sorts ("any number of ranks, pages, attempts ..."). A `Step` is
what one action asks of the state and what it changes; a relation that no change names keeps its value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, overload

import z3

Sort: TypeAlias = z3.SortRef
Term: TypeAlias = z3.ExprRef
Formula: TypeAlias = z3.BoolRef
Value: TypeAlias = Callable[..., Formula]
"""What a relation is in one state: terms in, formula out."""

TRUE = z3.BoolVal(True)
FALSE = z3.BoolVal(False)

_depth: ContextVar[int] = ContextVar("_depth", default=0)
_universe: ContextVar[Mapping[str, Sequence[Term]] | None] = ContextVar("_universe", default=None)


def sort(name: str) -> Sort:
    return z3.DeclareSort(name)


def function(name: str, *sorts: Sort) -> z3.FuncDeclRef:
    """A function that never changes; the last sort is that of its values."""
    return z3.Function(name, *sorts)


def predicate(name: str, *sorts: Sort) -> z3.FuncDeclRef:
    """A relation that never changes."""
    return z3.Function(name, *sorts, z3.BoolSort())


def parameter(name: str, of: Sort) -> Term:
    """What an action is about: any element of its sort."""
    return z3.Const(name, of)


# ---------------------------------------------------------------- formulas


def all_of(*formulas: Formula) -> Formula:
    return z3.And(*formulas)


def any_of(*formulas: Formula) -> Formula:
    return z3.Or(*formulas)


def implies(premise: Formula, conclusion: Formula) -> Formula:
    return z3.Implies(premise, conclusion)


def either(condition: Formula, yes: Formula, no: Formula) -> Formula:
    return z3.If(condition, yes, no)


def when(rule: bool, formula: Formula) -> Formula:
    """The formula, unless a mutant leaves the rule out."""
    return formula if rule else TRUE


def every(*sorts_then_body: Any) -> Formula:
    """`every(Rank, Lease, lambda k, t: ...)`: for all k, t."""
    return _quantified(z3.ForAll, all_of, *sorts_then_body)


def some(*sorts_then_body: Any) -> Formula:
    """`some(Lease, lambda t: ...)`: there is a t."""
    return _quantified(z3.Exists, any_of, *sorts_then_body)


def _quantified(quantifier: Any, expanded: Any, *sorts_then_body: Any) -> Formula:
    """Bound variables are named by their depth, so that equal text is an equal formula and nothing is captured."""
    *sorts, body = sorts_then_body
    universe = _universe.get()
    if universe is not None:
        return expanded(*(body(*terms) for terms in itertools.product(*(universe[str(each)] for each in sorts))))
    depth = _depth.get()
    bound = [z3.Const(f"{str(each).lower()}!{depth + n}", each) for n, each in enumerate(sorts)]
    token = _depth.set(depth + len(sorts))
    try:
        return quantifier(bound, body(*bound))
    finally:
        _depth.reset(token)


@contextmanager
def universe(elements: Mapping[str, Sequence[Term]]) -> Iterator[None]:
    """Within it, quantifiers are finite conjunctions and disjunctions over these elements, by name of sort."""
    token = _universe.set(elements)
    try:
        yield
    finally:
        _universe.reset(token)


# ---------------------------------------------------------------- states


@dataclass(frozen=True)
class Change:
    """The next value of one relation."""

    relation: str
    value: Value


@dataclass(frozen=True)
class Relation:
    """A relation as it is in one state."""

    name: str
    value: Value

    def __call__(self, *terms: Term) -> Formula:
        return self.value(*terms)

    def becomes(self, value: Value) -> Change:
        return Change(self.name, value)

    def plus(self, *point: Term) -> Change:
        """It holds for this point too."""
        return self.plus_where(lambda *terms: _same(terms, point))

    def minus(self, *point: Term) -> Change:
        """It holds for this point no more."""
        return self.minus_where(lambda *terms: _same(terms, point))

    def plus_where(self, condition: Value) -> Change:
        return self.becomes(lambda *terms: any_of(self(*terms), condition(*terms)))

    def minus_where(self, condition: Value) -> Change:
        return self.becomes(lambda *terms: all_of(self(*terms), ~condition(*terms)))


def _same(left: Sequence[Term], right: Sequence[Term]) -> Formula:
    return all_of(*(a == b for a, b in zip(left, right, strict=True)))


class Declared:
    """A relation of a state class, declared as `name = Declared(Sort, ...)`."""

    def __init__(self, *sorts: Sort) -> None:
        self.sorts = sorts
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, state: None, owner: type) -> Declared: ...
    @overload
    def __get__(self, state: State, owner: type) -> Relation: ...
    def __get__(self, state: State | None, owner: type) -> Declared | Relation:
        return self if state is None else Relation(self.name, state.values[self.name])


@dataclass(frozen=True)
class Step:
    """What an action asks (`guard`, about the state before) and what it changes."""

    guard: Formula
    changes: tuple[Change, ...]


def step(*guards: Formula, then: Sequence[Change]) -> Step:
    names = [change.relation for change in then]
    if len(names) != len(set(names)):
        raise ValueError(f"a relation is changed twice: {names}")
    return Step(all_of(*guards), tuple(then))


class State:
    """All relations of a model at one moment."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = dict(values)

    @classmethod
    def declared(cls) -> dict[str, tuple[Sort, ...]]:
        """Name and sorts of every relation."""
        return {name: each.sorts for name, each in vars(cls).items() if isinstance(each, Declared)}

    @classmethod
    def any(cls) -> Self:
        """A state of which nothing is known."""
        return cls({name: predicate(name, *sorts) for name, sorts in cls.declared().items()})

    @classmethod
    def empty(cls, *but: str) -> Self:
        """Nothing holds; of the relations named, nothing is known."""
        nothing: dict[str, Value] = {name: (lambda *_: FALSE) for name in cls.declared()}
        return cls(nothing | {name: cls.any().values[name] for name in but})

    def after(self, taken: Step) -> Self:
        """The state that the step leads to."""
        return type(self)(self.values | {change.relation: change.value for change in taken.changes})
