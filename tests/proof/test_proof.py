"""All obligations are proved; the prover is not blind; the models are not empty."""

from __future__ import annotations

from dataclasses import replace

import pytest
from proof.logic import FALSE, Formula, State, every, implies
from proof.model import Run, without
from proof.models import MODELS
from proof.mutants import prove_variant, tell, untold
from proof.obligations import START, prove, task
from proof.push.model import PUSH
from proof.push.state import Lease, PushState
from proof.runs import breaks, replay


@pytest.mark.parametrize("name", MODELS)
def test_every_obligation_is_proved(name: str) -> None:
    model = MODELS[name]
    found = [each for action in (START, *model.possible) for each in prove(task(model, action))]
    assert [each.name for each in found if not each.proved] == []
    assert len(found) == (1 + len(model.actions)) * len(model.invariants)


@pytest.mark.parametrize("name", MODELS)
def test_every_action_happens_in_a_run_from_the_start(name: str) -> None:
    """Each story ends in a state in which all invariants are true: they contradict neither each other nor a run."""
    model = MODELS[name]
    assert [story.steps for story in model.stories if tell(model, story) is None] == []
    assert untold(model) == set()


@pytest.mark.parametrize("name", MODELS)
def test_variants_are_proved_too(name: str) -> None:
    model = MODELS[name]
    for variant in model.variants:
        assert model.altered(variant.rules), variant.name
        assert [each.name for each in prove_variant(model, variant) if not each.proved] == []


def nothing_is_released(s: PushState) -> Formula:
    return every(Lease, lambda t: ~s.released(t))


def held_is_committed(s: PushState) -> Formula:
    return every(Lease, lambda t: implies(s.held(t), s.committed(t)))


def false(_: State) -> Formula:
    return FALSE


def test_what_does_not_hold_is_not_proved() -> None:
    for action, invariant in (("release", nothing_is_released), ("abort", held_is_committed)):
        wrong = replace(PUSH, supporting=(*PUSH.supporting, invariant))
        name = invariant.__name__
        assert all(each.proved for each in prove(task(wrong, START), [name]))
        assert breaks(wrong, f"{action} / {name}", {})
        assert not breaks(wrong, f"publish / {name}", {})


def test_a_start_that_breaks_an_invariant_is_noticed() -> None:
    wrong = replace(PUSH, supporting=(false,))
    assert [each.name for each in prove(task(wrong, START), ["false"]) if not each.proved] == ["start / false"]


def test_a_run_that_breaks_a_guard_is_impossible() -> None:
    assert replay(PUSH, Run("reserve publish bind dequeue launch")) is not None
    assert replay(PUSH, Run("reserve publish bind launch")) is None
    assert replay(PUSH, Run("publish")) is None
    assert replay(PUSH, Run("reserve reserve reserve")) is None, "two attempts in this universe"
    assert replay(PUSH, Run("reserve reserve reserve", sizes={"Attempt": 3})) is not None


def test_a_run_says_whom_each_step_is_about() -> None:
    found = replay(PUSH, Run("reserve publish", sizes={"Attempt": 1, "Lease": 1}))
    assert found is not None
    assert found.steps == ("reserve(attempt1)", "publish(rank1, life1, lease1)")


def test_a_switch_changes_what_it_says_and_nothing_else() -> None:
    assert PUSH.altered({}) == []
    assert PUSH.altered(without("poisoned_is_not_acked")) == ["send_ack"]
    assert PUSH.altered(without("no_clock_frees")) == ["clock_frees"]


def test_every_switch_has_its_mutant_or_variant() -> None:
    for model in MODELS.values():
        used = {rule for each in model.mutants for rule in each.without} | {r for v in model.variants for r in v.rules}
        assert used == set(model.rules.__dataclass_fields__), model.name
