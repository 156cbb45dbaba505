"""What a spare holds: the model where it costs little, libraries where it does not."""

from __future__ import annotations

import pytest

from quiesce.cli.spare_choice import LIBRARIES_BYTES, SpareChoice, choose_spare

GIB = 1 << 30


@pytest.mark.parametrize(
    ("asked", "weights", "free", "holds"),
    [
        ("auto", GIB, 10 * GIB, "model"),
        ("auto", GIB, 10 * GIB - 1, "libraries"),
        ("model", 100 * GIB, 10 * GIB, "model"),
        ("libraries", 1, 10 * GIB, "libraries"),
        ("off", 1, 10 * GIB, None),
    ],
)
def test_what_it_holds(asked: str, weights: int, free: int, holds: str | None) -> None:
    assert choose_spare(asked, weights, free).holds == holds


def test_the_table_says_what_it_costs_and_what_the_model_would() -> None:
    assert "holds libraries and model (1.2 GiB)" in choose_spare("auto", GIB, 10 * GIB).line()
    small = choose_spare("auto", 2 * GIB, 10 * GIB)
    assert small.n_bytes == LIBRARIES_BYTES
    assert small.line().endswith("holds libraries (180.0 MiB; the model would take 2.0 GiB more)")
    assert SpareChoice(None).line() == "none: a worker that dies loads everything again"
