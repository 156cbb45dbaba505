"""The default model against `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from quiesce.engine.engine import Engine
from quiesce.text import catalog
from tests.engine.conftest import Ids, Seats, oracle_logits, random_ids

TOLERANCE = 2e-3
"""Logits reach 40; float32 sums in another order differ by this much after 30 layers."""


def encode(text: str) -> Ids:
    directory = catalog.prepare(catalog.resolve("smollm2"))
    return np.array(Tokenizer.from_file(str(directory / "tokenizer.json")).encode(text).ids, np.int32)


@pytest.fixture(scope="module")
def expected(smollm2_oracle: Any) -> tuple[Ids, Any]:
    """A prompt of 200 tokens and the oracle's logits at each of them."""
    ids = random_ids(200, 49152)
    return ids, oracle_logits(smollm2_oracle, ids)


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_logits_at_page_edges(page_size: int, smollm2: Engine, expected: tuple[Ids, Any]) -> None:
    """Prompts of k pages, one token less and one more, then a decode step on top of each."""
    ids, logits = expected
    seats = Seats(smollm2, page_size)
    for k in (1, 2):
        for length in (k * page_size - 1, k * page_size, k * page_size + 1):
            if length < 1:
                continue
            np.testing.assert_allclose(seats.prefill(ids[:length]), logits[length - 1], rtol=0, atol=TOLERANCE)
            step = seats.decode([int(ids[length])], [length], [0])[0]
            np.testing.assert_allclose(step, logits[length], rtol=0, atol=TOLERANCE)


def test_prefill_may_be_split_anywhere(smollm2: Engine, expected: tuple[Ids, Any]) -> None:
    """At every chunk boundary of a prompt that spans pages and attention blocks."""
    ids, logits = expected
    seats = Seats(smollm2, 16)
    for cut in range(1, 70, 4):
        np.testing.assert_allclose(seats.prefill(ids[:70], [cut]), logits[69], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(seats.prefill(ids, [16, 40, 64, 100, 163]), logits[-1], rtol=0, atol=TOLERANCE)


def test_a_batch_is_its_sequences(smollm2: Engine, expected: tuple[Ids, Any]) -> None:
    """Seven sequences of different lengths in one step, each as if alone."""
    ids, logits = expected
    lengths = [1, 15, 16, 17, 64, 65, 199]
    seats = Seats(smollm2, 16, sequences=len(lengths))
    for sequence, length in enumerate(lengths):
        seats.prefill(ids[:length], sequence=sequence)
    out = seats.decode([int(ids[length]) for length in lengths], lengths, range(len(lengths)))
    np.testing.assert_allclose(out, logits[lengths], rtol=0, atol=TOLERANCE)


def test_greedy_tokens_are_those_of_transformers(smollm2: Engine, smollm2_oracle: Any) -> None:
    """A chat turn, until its end token."""
    ids = encode("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    import torch

    with torch.inference_mode():
        prompt = torch.from_numpy(ids.astype(np.int64))[None]
        answer = smollm2_oracle.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False
        )[0, ids.size :].tolist()
    assert Seats(smollm2, 16).greedy(ids, len(answer)) == answer


@pytest.mark.slow
def test_long_positions_agree(smollm2: Engine, smollm2_oracle: Any) -> None:
    """500 tokens in chunks of 128: rotary angles and many blocks."""
    ids = random_ids(500, 49152, seed=3)
    expected = oracle_logits(smollm2_oracle, ids)[-1]
    np.testing.assert_allclose(Seats(smollm2, 64).prefill(ids, [128, 256, 384]), expected, rtol=0, atol=TOLERANCE)
