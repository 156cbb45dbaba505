"""Deterministic mode: a row's bits depend on its own sequence alone."""

from __future__ import annotations

import numpy as np
import pytest

from quiesce.engine.engine import Engine
from quiesce.engine.linear import Linear
from tests.engine.conftest import Logits, Seats, random_ids

LENGTH = 140
CUTS = ([1], [15], [16], [17], [63], [64], [65], [139], [5, 70, 71], list(range(20, 140, 20)))


def check(engine: Engine, cuts: tuple[list[int], ...], page_size: int) -> None:
    seats = Seats(engine, page_size, sequences=8)
    ids = random_ids(LENGTH, 250)
    whole = seats.prefill(ids)
    for split in cuts:
        assert np.array_equal(whole, seats.prefill(ids, split)), f"chunks ending at {split}"
    assert np.array_equal(whole, replayed(seats, ids.tolist(), 90)), "decode steps in place of prefill"
    for order in ((0, 1, 2, 3, 4, 5, 6), (3, 1, 0, 2, 5, 6, 4), (6, 5, 4, 3, 2, 1, 0)):
        assert np.array_equal(whole, among_others(seats, ids.tolist(), order)), f"row {order.index(0)} of a batch of 7"


def replayed(seats: Seats, ids: list[int], prefilled: int) -> Logits:
    seats.prefill(np.array(ids[:prefilled], np.int32))
    for position in range(prefilled, len(ids)):
        logits = seats.decode([ids[position]], [position], [0])
    last: Logits = logits[0]
    return last


def among_others(seats: Seats, ids: list[int], order: tuple[int, ...]) -> Logits:
    """The last token of sequence 0 decoded in a batch with six sequences of other lengths."""
    lengths = (len(ids) - 1, 5, 33, 64, 90, 120, 200)
    for sequence in order[1:]:
        seats.prefill(random_ids(lengths[sequence], 250, seed=sequence), sequence=sequence)
    seats.prefill(np.array(ids[:-1], np.int32), sequence=0)
    tokens = [ids[-1] if sequence == 0 else 7 for sequence in order]
    batch = seats.decode(tokens, [lengths[sequence] for sequence in order], order)
    ours: Logits = batch[order.index(0)]
    return ours


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_tiny_is_bit_equal_however_it_is_cut_and_batched(exact_tiny: Engine, page_size: int) -> None:
    check(exact_tiny, CUTS, page_size)


@pytest.mark.slow
def test_smollm2_is_bit_equal_however_it_is_cut_and_batched() -> None:
    check(Engine.load("smollm2", deterministic=True), ([1], [16], [65]), 16)


def test_deterministic_means_one_thread() -> None:
    assert Engine.load("tiny", threads=2, deterministic=True).threads == 1


@pytest.mark.parametrize(("columns", "k"), [(48, 40), (576, 1536)])
def test_products_of_tiles_do_not_depend_on_the_rows_beside(columns: int, k: int) -> None:
    """Any number of rows, any place among them, with a residual or without."""
    import torch

    torch.manual_seed(0)
    linear = Linear([torch.randn(columns, k)], torch.randn(columns), deterministic=True)
    x, residual = torch.randn(70, k).numpy(), torch.randn(70, columns).numpy()
    whole, added = linear(x), linear.add_to(residual, x)
    for rows in (1, 2, 7, 15, 16, 17, 33, 69):
        for first in (0, 1, 70 - rows):
            part = slice(first, first + rows)
            assert np.array_equal(linear(x[part].copy()), whole[part])
            assert np.array_equal(linear.add_to(residual[part].copy(), x[part].copy()), added[part])
