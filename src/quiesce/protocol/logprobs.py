"""How likely the model found what was said."""

from __future__ import annotations

import msgspec

MAX_TOP_LOGPROBS = 20
"""Most alternatives that are told beside a token."""

LEAST_LOGPROB = -9999.0
"""Stands for all that is less, minus infinity included: JSON has no infinity."""


class TokenLogprobs(msgspec.Struct, frozen=True):
    """Natural log probabilities at one position, by the model's own logits (before bias, penalties and temperature).

    `logprob` is the drawn token's; `top_ids` and `top_logprobs` are the most likely tokens, most likely first, equal
    ones by id.
    """

    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


def problem_with(told: TokenLogprobs, most_token_id: int) -> str:
    """What is out of bounds in logprobs from the network, or ""."""
    if len(told.top_ids) != len(told.top_logprobs) or len(told.top_ids) > MAX_TOP_LOGPROBS:
        return f"{len(told.top_ids)} ids and {len(told.top_logprobs)} values"
    if not all(0 <= token_id <= most_token_id for token_id in told.top_ids):
        return "a token id"
    if not all(LEAST_LOGPROB <= value <= 0 for value in (told.logprob, *told.top_logprobs)):
        return "a value"  # NaN compares false too
    return ""
