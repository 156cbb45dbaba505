"""docs/mutants.md names all mutants of today, and two layers see each, or it says why only one can."""

from __future__ import annotations

from tests.mutants.known import BY_NAME, MUTANTS
from tests.mutants.layers import LAYERS, checks_that_fail, proof
from tests.mutants.page import PAGE, told, why_alone, written
from tests.mutants.proved import PROVED


def test_the_page_names_all_mutants() -> None:
    assert set(told(PAGE.read_text(encoding="utf-8"))) == set(BY_NAME)


def test_the_page_is_as_it_is_written() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(told(page)) == page, "make mutants writes it anew"


def test_two_layers_see_each_mutant_or_it_says_why_not() -> None:
    seen = told(PAGE.read_text(encoding="utf-8"))
    once = [each.name for each in MUTANTS if len(seen[each.name]) < 2]
    assert [name for name in once if not why_alone(BY_NAME[name])] == []
    assert all(seen.values())


def test_the_page_says_what_the_registry_says() -> None:
    seen = told(PAGE.read_text(encoding="utf-8"))
    assert [each.name for each in MUTANTS if each.world is not None and "explorer" not in seen[each.name]] == []
    assert [each.name for each in MUTANTS if each.check and f"`{each.check}`" not in seen[each.name]["checks"]] == []


def test_no_reason_is_given_for_what_two_layers_see() -> None:
    seen = told(PAGE.read_text(encoding="utf-8"))
    assert [each.name for each in MUTANTS if each.alone and len(seen[each.name]) > 1] == []


def test_the_proofs_mutants_are_mutants() -> None:
    assert set(PROVED) <= set(BY_NAME)
    for name in ("client abort does not hold", "the writer's death is a fence"):
        assert proof(BY_NAME[name])


def test_layers_see_a_mutant_and_nothing_else() -> None:
    assert checks_that_fail() == []
    with BY_NAME["a poisoned attempt is acked"].applied():
        assert "poisoned_is_never_acked" in checks_that_fail()
    assert len(LAYERS) == 5
