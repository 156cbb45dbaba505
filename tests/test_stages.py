"""Every room has a budget, all of them fit, and who is over is named."""

from __future__ import annotations

from pathlib import Path

from tests.stages import BUDGETS_S, MINUTES, PROCESSES, report, room_of, spent_s

TESTS = Path(__file__).parent


def test_every_room_has_a_budget_and_all_of_them_fit() -> None:
    assert {each.parent.name for each in TESTS.glob("*/__init__.py")} == set(BUDGETS_S)
    assert sum(BUDGETS_S.values()) <= PROCESSES * MINUTES * 60


def test_a_test_belongs_to_the_room_of_its_folder() -> None:
    assert room_of("tests/lab/swarm/test_swarm.py::test_x[a/b]") == "lab"
    assert room_of("tests/test_tidy.py::test_x") == ""


def test_the_report_names_who_is_over() -> None:
    assert report(spent_s([("tests/kv/test_a.py::a", 1.0)])) == []
    (line,) = report(spent_s([("tests/kv/test_a.py::a", 30.0), ("tests/kv/test_a.py::a", 15.0)]))
    assert line.split() == ["kv", "45", "s", "of", str(BUDGETS_S["kv"]), "OVER", "BUDGET"]
    whole = report(dict.fromkeys(BUDGETS_S, 1.0))
    assert [each.split()[0] for each in whole] == [*BUDGETS_S, "all"]
    assert not any("OVER" in each for each in whole)
