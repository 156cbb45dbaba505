"""What a model is made of: a state, a start, actions that obey rules, invariants with names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import z3

from proof.logic import Formula, Sort, State, Step, Term, all_of, predicate

Action = Callable[[Any, Any], Step]
"""(state, rules) -> step."""

Invariant = Callable[[Any], Formula]


@dataclass(frozen=True)
class Run:
    """Actions in order, from the start; whom each is about is for the solver to find.

    `sizes`: how many elements a sort has in the search, where the model's own number is too small. `violates` names the
    invariant that is false at the end.
    """

    steps: str
    violates: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.steps.split())


def without(*rules: str) -> dict[str, bool]:
    """The switches that leave these rules out."""
    return dict.fromkeys(rules, False)


@dataclass(frozen=True)
class Mutant:
    """A model without one protection: the obligation that breaks, and the run that does the harm."""

    rule: str
    name: str
    without: Mapping[str, bool]
    breaks: str
    harm: Run


@dataclass(frozen=True)
class Variant:
    """A model with less, or with more freedom, that is proved safe as well."""

    name: str
    rules: Mapping[str, bool]


@dataclass(frozen=True, eq=False)
class Model:
    """`rules` is a frozen dataclass of switches; `extra` has the actions that exist only while a rule is off."""

    name: str
    start: Callable[[], tuple[State, Formula]]
    rules: Any
    actions: tuple[Action, ...]
    extra: Mapping[str, Action]
    safety: tuple[Invariant, ...]
    supporting: tuple[Invariant, ...]
    functions: tuple[Any, ...]
    parameters: tuple[Term, ...]
    sizes: Mapping[str, int]
    stories: tuple[Run, ...]
    mutants: tuple[Mutant, ...]
    variants: tuple[Variant, ...] = ()
    switches: Mapping[str, bool] = field(default_factory=dict)

    def with_rules(self, switches: Mapping[str, bool]) -> Model:
        """The same model, some rules switched."""
        return replace(self, rules=replace(self.rules, **switches), switches=dict(switches))

    @cached_property
    def any_state(self) -> State:
        """A state of which nothing is known: what a step of the induction starts from."""
        return type(self.start()[0]).any()

    @cached_property
    def sorts(self) -> dict[str, Sort]:
        """Every sort that a relation, function or parameter speaks of, by name."""
        spoken = [each for sorts in self.any_state.declared().values() for each in sorts]
        spoken += [each.domain(n) for each in self.functions for n in range(each.arity())]
        spoken += [each.range() for each in self.functions if each.range() != z3.BoolSort()]
        return {str(each): each for each in spoken}

    @cached_property
    def possible(self) -> dict[str, Action]:
        """Actions by name, those that a missing rule makes possible included."""
        off = [action for rule, action in self.extra.items() if not getattr(self.rules, rule)]
        return {action.__name__: action for action in (*self.actions, *off)}

    @cached_property
    def invariants(self) -> dict[str, Invariant]:
        return {each.__name__: each for each in (*self.safety, *self.supporting)}

    @cache  # noqa: B019 - there are a few dozen models, and they live as long as the program
    def text(self, action: str) -> Formula:
        """All that an action says, as one formula: equal formulas are equal actions."""
        taken = self.possible[action](self.any_state, self.rules)
        sorts = self.any_state.declared()
        points = {
            name: [z3.Const(f"{each}?{n}", each) for n, each in enumerate(those)] for name, those in sorts.items()
        }
        changes = [
            predicate(f"{each.relation}'", *sorts[each.relation])(*points[each.relation])
            == each.value(*points[each.relation])
            for each in taken.changes
        ]
        return all_of(taken.guard, *changes)

    def altered(self, switches: Mapping[str, bool]) -> list[str]:
        """The actions that these switches change or make possible."""
        other = self.with_rules(switches)
        return [
            each for each in other.possible if each not in self.possible or not self.text(each).eq(other.text(each))
        ]
