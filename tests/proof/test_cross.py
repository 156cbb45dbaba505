"""A second solver, cvc5, proves the same obligations from SMT-LIB text."""

from __future__ import annotations

import pytest
from proof.cross import answers, disagreements, smtlib
from proof.models import MODELS
from proof.obligations import START, task


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_cvc5_proves_every_obligation(name: str) -> None:
    model = MODELS[name]
    unproved = {action: disagreements(model, task(model, action)) for action in (START, *model.possible)}
    assert {action: said for action, said in unproved.items() if said} == {}


def test_cvc5_is_asked_every_obligation_of_an_action() -> None:
    model = MODELS["staged"]
    assert answers(smtlib(model, task(model, "verify"))) == ["unsat"] * len(model.invariants)


def test_cvc5_does_not_prove_what_is_wrong() -> None:
    model = MODELS["staged"].with_rules({"digest_covers_identity": False})
    assert "told_is_own" in disagreements(model, task(model, "hear_done"))
