"""Formulas of the proof mean on finite structures what they say."""

from __future__ import annotations

import pytest
from proof.logic import TRUE, Formula, all_of, any_of, either, every, implies, some
from proof.push.state import Attempt, Lease, PushState, attempt_of
from proof.structures import Structure, meaning

S = PushState.any()
TWO = Structure(
    elements={"Lease": ["x", "y"], "Attempt": [1, 2]},
    functions={"attempt_of": {("x",): 1, ("y",): 2}},
    relations={"held": frozenset({("x",)}), "minted": frozenset({(1,), (2,)}), "released": frozenset()},
)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (every(Lease, lambda t: S.held(t)), False),
        (some(Lease, lambda t: S.held(t)), True),
        (some(Lease, lambda t: S.released(t)), False),
        (every(Lease, lambda t: S.minted(attempt_of(t))), True),
        (every(Lease, lambda t: implies(S.held(t), S.released(t))), False),
        (every(Lease, lambda t: implies(S.released(t), S.held(t))), True),
        (every(Lease, lambda t: any_of(S.held(t), ~S.released(t))), True),
        (every(Lease, Lease, lambda t, u: implies(attempt_of(t) == attempt_of(u), t == u)), True),
        (every(Lease, Lease, lambda t, u: t == u), False),
        (every(Attempt, lambda a: some(Lease, lambda t: attempt_of(t) == a)), True),
        (some(Lease, lambda t: every(Attempt, lambda a: attempt_of(t) == a)), False),
        (every(Lease, lambda t: either(S.held(t), S.minted(attempt_of(t)), ~S.released(t))), True),
        (all_of(TRUE, ~some(Lease, lambda t: all_of(S.held(t), S.released(t)))), True),
    ],
)
def test_a_formula_means_what_it_says(formula: Formula, expected: bool) -> None:
    assert meaning(formula)(TWO, ()) is expected
