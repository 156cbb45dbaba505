from __future__ import annotations

import numpy as np

from quiesce.engine.logprobs import tell
from quiesce.protocol.dispatch import Sampling
from quiesce.protocol.logprobs import LEAST_LOGPROB, TokenLogprobs, problem_with

PLAIN, WITH = Sampling(), Sampling(logprobs=3)


def test_nobody_asked_nothing_told() -> None:
    assert tell(np.zeros((2, 5), np.float32), np.zeros(2, np.int32), [PLAIN, PLAIN]) is None


def test_logprobs_are_the_log_of_the_softmax_and_sorted_equal_ones_by_id() -> None:
    row = np.log(np.array([0.1, 0.3, 0.05, 0.3, 0.25])).astype(np.float32) + 7
    told = tell(np.stack([row, row]), np.array([2, 2], np.int32), [PLAIN, WITH])
    assert told is not None
    assert told[0] is None
    assert told[1] is not None
    assert told[1].top_ids == (1, 3, 4)
    np.testing.assert_allclose(told[1].logprob, np.log(0.05), rtol=1e-5)
    np.testing.assert_allclose(told[1].top_logprobs, np.log([0.3, 0.3, 0.25]), rtol=1e-5)


def test_the_drawn_tokens_alone() -> None:
    told = tell(np.zeros((1, 4), np.float32), np.array([1], np.int32), [Sampling(logprobs=0)])
    assert told is not None
    assert told[0] is not None
    assert told[0].top_ids == ()
    np.testing.assert_allclose(told[0].logprob, np.log(0.25))


def test_infinities_and_tiny_vocabularies_stay_in_bounds() -> None:
    row = np.array([[3.0, -np.inf]], np.float32)
    told = tell(row, np.array([1], np.int32), [Sampling(logprobs=20)])
    assert told == [TokenLogprobs(LEAST_LOGPROB, (0, 1), (0.0, LEAST_LOGPROB))]
    assert problem_with(TokenLogprobs(LEAST_LOGPROB, (0, 1), (0.0, LEAST_LOGPROB)), 1) == ""
