"""What shapes a draw: the same from one `Shaping` over a whole answer as from a fresh one that is told of its start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor

from quiesce.engine.sampling import sample
from quiesce.engine.shaping import CannotGoOn, Mask, Shaping, shaping_of
from quiesce.protocol.dispatch import Sampling

VOCAB = 40
ROW = np.linspace(-4, 4, VOCAB).astype(np.float32)


def shaping(prompt: list[int] | None = None, stop_ids: list[int] | None = None, **how: Any) -> Shaping:
    found = shaping_of(Sampling(**how), np.array(prompt or [0], np.int32), stop_ids or [], VOCAB)
    assert found is not None
    return found


@pytest.mark.parametrize("how", [Sampling(), Sampling(min_p=0.5, top_k=3, logprobs=5, temperature=0.0)])
def test_what_changes_no_logits_has_no_shaping(how: Sampling) -> None:
    assert shaping_of(how, np.array([1], np.int32), [2], VOCAB) is None


def test_bias_is_added_and_the_row_stays() -> None:
    row = ROW.copy()
    shaped = shaping(logit_bias=((3, 5.0), (4, -100.0))).apply(row)
    assert shaped[3] == ROW[3] + 5
    assert shaped[4] == ROW[4] - 100
    assert np.array_equal(np.delete(shaped, [3, 4]), np.delete(ROW, [3, 4]))
    assert np.array_equal(row, ROW)


def test_presence_counts_once_and_frequency_each_time_and_prompts_do_not_count() -> None:
    shape = shaping(prompt=[7], presence_penalty=0.5, frequency_penalty=0.25)
    assert np.array_equal(shape.apply(ROW), ROW)
    for token in (1, 2, 2):
        shape.say(token)
    shaped = shape.apply(ROW)
    np.testing.assert_allclose(shaped[[1, 2, 7]], ROW[[1, 2, 7]] - np.array([0.75, 1.0, 0]), rtol=1e-6)


def test_repetition_makes_the_prompts_and_said_tokens_less_likely_whatever_their_sign() -> None:
    shape = shaping(prompt=[1, 38, 38], repetition_penalty=2.0)
    shape.say(39)
    shaped = shape.apply(ROW)
    np.testing.assert_allclose(shaped[[1, 38, 39]], [ROW[1] * 2, ROW[38] / 2, ROW[39] / 2], rtol=1e-6)
    assert np.array_equal(shaped[2:38], ROW[2:38])


def test_nothing_that_ends_the_answer_is_drawn_before_min_tokens() -> None:
    shape = shaping(stop_ids=[39, 38, 10_000], min_tokens=2)
    for _ in range(2):
        assert shape.apply(ROW).argmax() == 37
        shape.say(37)
    assert shape.apply(ROW).argmax() == 39


def test_if_nothing_else_can_be_said_the_answer_may_end() -> None:
    row = np.full(VOCAB, -np.inf, np.float32)
    row[5] = 1.0
    assert shaping(stop_ids=[5], min_tokens=9).apply(row).argmax() == 5


class Turns:
    """A grammar: each turn has its ids, and the stop token comes when all turns are over."""

    is_ready = True

    def wait(self, _: float) -> bool:
        return True

    def when_ready(self, _: Any) -> None:
        raise NotImplementedError

    def __init__(self, *turns: list[int], size: int = VOCAB, stop: int = VOCAB - 1) -> None:
        self._turns, self._size = [*turns, [stop]], size
        self._said = 0

    def say(self, token: int) -> None:
        self._said += token in self._turns[self._said]

    def allowed(self) -> Mask:
        if self._said == len(self._turns):
            raise CannotGoOn("all is said")
        mask = np.zeros(self._size, bool)
        mask[self._turns[self._said]] = True
        return mask


def under(grammar: Turns, unwanted: list[int] | None = None, **how: Any) -> Shaping:
    found = shaping_of(Sampling(**how), np.array([0], np.int32), [VOCAB - 1], VOCAB, grammar, unwanted or [])
    assert found is not None
    return found


def test_only_what_the_grammar_allows_can_be_drawn() -> None:
    shape, row = under(Turns([3, 5], [7])), ROW.copy()
    shaped = shape.apply(row)
    assert np.flatnonzero(np.isfinite(shaped)).tolist() == [3, 5]
    assert np.array_equal(shaped[[3, 5]], ROW[[3, 5]])
    assert np.array_equal(row, ROW)
    shape.say(3)
    assert shape.apply(row).argmax() == 7


def test_neither_bias_nor_penalties_let_anything_else_in() -> None:
    grammar, bias = Turns([3, 5], [7]), ((38, 1000.0), (3, -1000.0))
    shape = under(grammar, logit_bias=bias, presence_penalty=-2, frequency_penalty=-2, repetition_penalty=0.1)
    for _ in range(2):
        shaped = shape.apply(ROW)
        assert np.flatnonzero(np.isfinite(shaped)).tolist() == [3, 5]
        assert shaped.argmax() == 5
        shape.say(38)  # the grammar stays where it is


def test_a_vocabulary_may_be_smaller_than_the_models() -> None:
    shaped = under(Turns([2, 4], size=5)).apply(ROW)
    assert np.flatnonzero(np.isfinite(shaped)).tolist() == [2, 4]


def test_the_end_waits_for_min_tokens_unless_the_grammar_is_over() -> None:
    end = VOCAB - 1
    shape = under(Turns([2, end], [2, end], []), min_tokens=2)
    assert shape.apply(ROW).argmax() == 2
    shape.say(2)
    assert shape.apply(ROW).argmax() == 2
    shape.say(2)
    short = under(Turns([2]), min_tokens=9)
    short.say(2)
    assert short.apply(ROW).argmax() == end


def test_what_is_unwanted_comes_only_where_nothing_else_can() -> None:
    end = VOCAB - 1
    shape = under(Turns([2, end]), [end])
    assert shape.apply(ROW).argmax() == 2
    shape.say(2)
    assert shape.apply(ROW).argmax() == end


def test_a_grammar_that_cannot_go_on_says_so_and_breaks_nothing() -> None:
    shape = under(Turns())
    shape.say(VOCAB - 1)
    drawn = sample(np.stack([ROW, ROW]), [Sampling(), Sampling(temperature=0)], [1, 2], [0, 0], [shape, None])
    assert shape.problem == "all is said"
    assert drawn[1] == VOCAB - 1


def test_nothing_is_drawn_where_the_model_allows_nothing_of_the_grammar() -> None:
    row = ROW.copy()
    row[[3, 5]] = -np.inf
    shape = under(Turns([3, 5]))
    shape.apply(row)
    assert "the model says nothing" in shape.problem


@pytest.mark.parametrize(
    "how", [{"top_k": 3}, {"top_k": 1}, {"top_p": 0.1}, {"min_p": 0.9}, {"top_k": 9, "top_p": 0.5}]
)
def test_narrowing_leaves_something_of_what_is_allowed(how: dict[str, Any]) -> None:
    allowed = [0, 1]
    drawn = {int(sample(ROW[None], [Sampling(**how)], [s], [0], [under(Turns(allowed), **how)])[0]) for s in range(50)}
    assert drawn <= set(allowed)


HOW = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    min_p=st.sampled_from([0.0, 0.2]),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.5, 2),
    min_tokens=st.integers(0, 5),
    logit_bias=st.lists(st.tuples(st.integers(0, VOCAB - 1), st.floats(-5, 5)), max_size=3).map(tuple),
)


@given(HOW, st.integers(0, 2**32), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6), st.booleans())
@settings(deadline=None, max_examples=50)
def test_two_processes_draw_what_one_would(how: Sampling, seed: int, prompt: list[int], bound: bool) -> None:
    """Prefill draws step 0 with its own shaping, decode has another that hears of it; beside other rows or alone."""
    rows = np.random.default_rng(seed).standard_normal((8, VOCAB)).astype(np.float32)
    ids, stops = np.array(prompt, np.int32), [VOCAB - 1]

    def fresh() -> Shaping | None:
        return shaping_of(how, ids, stops, VOCAB, Turns(*[[n, n + 1, n + 9] for n in range(8)]) if bound else None)

    one, answer = fresh(), list[int]()
    for step, row in enumerate(rows):
        answer.append(int(sample(row[None], [how], [seed], [step], [one])[0]))
        if one is not None:
            one.say(answer[-1])
    parted, two = [int(sample(rows[:1], [how], [seed], [0], [fresh()])[0])], fresh()
    for step, row in enumerate(rows[1:], 1):
        if two is not None:
            two.say(parted[-1])
        pair = np.stack([rows[0], row])
        parted.append(int(sample(pair, [Sampling(), how], [1, seed], [9, step], [None, two])[1]))
    assert parted == answer


@pytest.mark.parametrize("penalty", [0.5, 1.7])
def test_the_repetition_penalty_is_that_of_transformers(penalty: float) -> None:
    """Prompt and answer count alike, and each token once."""
    prompt, said = [3, 39, 3, 20], [39, 0, 5]
    shape = shaping(prompt=prompt, repetition_penalty=penalty)
    for token in said:
        shape.say(token)
    oracle = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([prompt + said]), torch.tensor(ROW[None].copy()))
    np.testing.assert_allclose(shape.apply(ROW), oracle[0].numpy(), rtol=1e-6)


@pytest.mark.parametrize("min_p", [0.05, 0.3, 0.9])
def test_min_p_keeps_what_transformers_keeps(min_p: float) -> None:
    narrowed = MinPLogitsWarper(min_p)(torch.zeros(1, 1), torch.tensor(ROW[None].copy()))  # type: ignore[arg-type]
    kept = torch.isfinite(narrowed)[0].numpy()
    drawn = {int(sample(ROW[None], [Sampling(min_p=min_p)], [seed], [0])[0]) for seed in range(600)}
    assert drawn <= set(np.flatnonzero(kept).tolist())
    assert len(drawn) > 0.5 * kept.sum()
