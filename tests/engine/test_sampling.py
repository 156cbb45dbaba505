"""Draws: greedy ties, narrowing, distribution, and that only (seed, step) matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quiesce.engine.sampling import Logits, sample, uniform
from quiesce.protocol.dispatch import Sampling


def logits_of(*rows: list[float]) -> Logits:
    return np.array(rows, np.float32)


def draws(row: list[float], how: Sampling, count: int = 400) -> list[int]:
    return [int(sample(logits_of(row), [how], [seed], [0])[0]) for seed in range(count)]


def test_temperature_zero_takes_the_lowest_id_of_equal_logits() -> None:
    rows = logits_of([0, 3, 3, 1], [5, 5, 5, 5], [-np.inf, -np.inf, -2, -2])
    assert sample(rows, [Sampling(temperature=0)] * 3, [0, 1, 2], [0, 0, 0]).tolist() == [1, 0, 2]


def test_a_draw_depends_on_seed_and_step_alone() -> None:
    """Neither the row, nor the rows beside it, nor what was drawn before."""
    rows = np.random.default_rng(0).standard_normal((5, 1000)).astype(np.float32)
    how = [Sampling(temperature=0.8, top_p=0.9)] * 5
    together = sample(rows, how, [11, 12, 13, 14, 15], [3, 0, 7, 7, 2])
    alone = [
        int(sample(rows[row : row + 1], how[:1], [11 + row], [step])[0]) for row, step in enumerate([3, 0, 7, 7, 2])
    ]
    assert together.tolist() == alone
    assert len({uniform(seed, step) for seed in range(20) for step in range(20)}) == 400


def test_seeds_of_any_size_and_sign_are_taken() -> None:
    values = [uniform(seed, 5) for seed in (0, -1, 2**63, 2**64, 2**64 - 2, -(2**63))]
    assert len(set(values)) == len(values)
    assert all(0 <= value < 1 for value in values)


def test_frequencies_follow_the_softmax() -> None:
    """Three tokens of probability 0.6, 0.3, 0.1, at temperature 1 and at 1/2 (squares)."""
    row = np.log([0.6, 0.3, 0.1]).tolist()
    for temperature in (1.0, 0.5):
        weights = np.array([0.6, 0.3, 0.1]) ** (1 / temperature)
        seen = np.bincount(draws(row, Sampling(temperature=temperature), 4000), minlength=3) / 4000
        np.testing.assert_allclose(seen, weights / weights.sum(), atol=0.025)


@pytest.mark.parametrize(
    ("how", "possible"),
    [
        (Sampling(top_k=1), {3}),
        (Sampling(top_k=2), {3, 1}),
        (Sampling(top_k=3), {3, 1, 0}),
        (Sampling(top_k=99), {0, 1, 2, 3}),
        (Sampling(top_p=0.4), {3}),
        (Sampling(top_p=0.7), {3, 1}),
        (Sampling(top_p=0.99), {0, 1, 2, 3}),
        (Sampling(top_k=2, top_p=0.5), {3}),
        (Sampling(top_k=2, top_p=0.7), {3, 1}),
        (Sampling(top_p=0.0), {3}),
        (Sampling(temperature=1e-9), {3}),
    ],
)
def test_top_k_and_then_top_p_narrow(how: Sampling, possible: set[int]) -> None:
    """Probabilities .15 (id 0), .3 (id 1), .05 (id 2), .5 (id 3). Equal ones would be kept by rising id."""
    assert set(draws(np.log([0.15, 0.3, 0.05, 0.5]).tolist(), how)) == possible


def test_equal_logits_at_the_edge_of_top_k_are_kept_by_id() -> None:
    assert set(draws([1.0, 1.0, 1.0, 1.0], Sampling(top_k=2))) == {0, 1}


def test_impossible_tokens_are_never_drawn() -> None:
    """Padding rows of a vocabulary have logit -inf."""
    row = [0.0, -np.inf, 0.0, -np.inf]
    for how in (Sampling(), Sampling(top_p=0.999), Sampling(top_k=3), Sampling(temperature=5.0)):
        assert set(draws(row, how)) == {0, 2}


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1), st.floats(0.05, 5), st.floats(0, 1), st.integers(0, 60))
@example(vocab=2, seed=1, temperature=1.0, top_p=1.0, top_k=2)
@settings(deadline=None, max_examples=60)
def test_large_vocabularies_agree_with_a_plain_implementation(
    vocab: int, seed: int, temperature: float, top_p: float, top_k: int
) -> None:
    """Pruning and block sums change nothing but speed, except where the draw falls on an edge of float rounding."""
    row = (np.random.default_rng(seed).standard_normal(vocab) * 4).astype(np.float32)
    token = int(sample(row[None], [Sampling(temperature, top_p, top_k)], [seed], [1])[0])
    order, mass = plain_nucleus(row, temperature, top_p, top_k)
    rank = int(np.flatnonzero(order == token)[0])
    if top_p < 1 or 0 < top_k < vocab:  # else nothing narrows, and the draw goes by id, not by probability
        below = mass[rank - 1] if rank else 0.0
        assert below - 1e-4 <= uniform(seed, 1) <= mass[rank] + 1e-4


def plain_nucleus(row: Logits, temperature: float, top_p: float, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids that can be drawn, most likely first, and their cumulative probability."""
    order = np.argsort(-row, kind="stable")[: top_k or None]
    weights = np.exp((row[order].astype(np.float64) - row.max()) / temperature)
    probabilities = weights / weights.sum()
    kept = int(np.searchsorted(np.cumsum(probabilities), top_p - 1e-6)) + 1
    kept = min(kept + 1, order.size)  # an edge within rounding may fall either way
    cumulative = np.cumsum(probabilities[:kept])
    exact = int(np.searchsorted(np.cumsum(probabilities), top_p)) + 1
    return order[:kept], cumulative / cumulative[min(exact, kept) - 1]
