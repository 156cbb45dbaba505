from __future__ import annotations

import math

import pytest

from quiesce.protocol.logprobs import LEAST_LOGPROB, MAX_TOP_LOGPROBS, TokenLogprobs, problem_with

MOST = MAX_TOP_LOGPROBS


@pytest.mark.parametrize(
    "told",
    [
        TokenLogprobs(0.0),
        TokenLogprobs(LEAST_LOGPROB, (0, 9), (-0.0, LEAST_LOGPROB)),
        TokenLogprobs(-1.0, (0,) * MOST, (-1.0,) * MOST),
    ],
)
def test_within_bounds(told: TokenLogprobs) -> None:
    assert problem_with(told, 9) == ""


@pytest.mark.parametrize(
    "told",
    [
        TokenLogprobs(0.1),
        TokenLogprobs(math.nan),
        TokenLogprobs(-math.inf),
        TokenLogprobs(-1.0, (1,), ()),
        TokenLogprobs(-1.0, (10,), (-1.0,)),
        TokenLogprobs(-1.0, (-1,), (-1.0,)),
        TokenLogprobs(-1.0, (1,), (math.nan,)),
        TokenLogprobs(-1.0, (0,) * (MOST + 1), (-1.0,) * (MOST + 1)),
    ],
)
def test_out_of_bounds(told: TokenLogprobs) -> None:
    assert problem_with(told, 9)
