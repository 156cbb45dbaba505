"""Reject before anything exists (rule 10). Router, prefill's door and decode's door ask the same questions here.

Prefill: the prompt within its context and pool. Decode: prompt + max_tokens within its context and pool, the prompt
within what it lands in; an absent max_tokens is clipped to what fits, never a reason to reject.
"""

from __future__ import annotations

import msgspec

from quiesce.errors import RequestRejected

TOO_LONG = "context_length_exceeded"


class Limits(msgspec.Struct, frozen=True):
    """What one worker can hold of one request, in tokens: the model's context and the pool's size (whole pages).

    `landing_tokens` of a prompt can land at once; 0: as many as the pool has.
    """

    context_length: int
    pool_tokens: int
    landing_tokens: int = 0

    @property
    def most_tokens(self) -> int:
        return min(self.context_length, self.pool_tokens)


def admit_prefill(prompt_tokens: int, limits: Limits) -> None:
    """The prompt fits this prefill worker. Raises RequestRejected."""
    _demand_prompt(prompt_tokens)
    if prompt_tokens > limits.most_tokens:
        raise RequestRejected(
            f"{_what_fits(limits)} However, your prompt has {prompt_tokens} tokens. Please shorten the prompt.",
            code=TOO_LONG,
            param="messages",
        )


def admit_decode(prompt_tokens: int, max_tokens: int | None, limits: Limits) -> int:
    """How many tokens may be generated: `max_tokens`, or what fits when it is None. Raises RequestRejected."""
    _demand_prompt(prompt_tokens)
    if max_tokens is not None and max_tokens < 1:
        raise RequestRejected(
            f"max_tokens must be at least 1, not {max_tokens}.", code="invalid_value", param="max_tokens"
        )
    wanted = 1 if max_tokens is None else max_tokens
    if prompt_tokens + wanted > limits.most_tokens:
        raise _too_long(prompt_tokens, max_tokens, limits)
    if 0 < limits.landing_tokens < prompt_tokens:
        raise _too_long_to_land(prompt_tokens, limits)
    return limits.most_tokens - prompt_tokens if max_tokens is None else max_tokens


def _demand_prompt(prompt_tokens: int) -> None:
    if prompt_tokens < 1:
        raise RequestRejected("The prompt is empty; it must have at least one token.", code="empty_prompt")


def _too_long(prompt_tokens: int, max_tokens: int | None, limits: Limits) -> RequestRejected:
    if max_tokens is None:
        asked = f"your prompt has {prompt_tokens} tokens, which leaves no room for one more. Please shorten the prompt."
    else:
        asked = (
            f"you requested {prompt_tokens + max_tokens} tokens ({prompt_tokens} in the prompt, {max_tokens} in the "
            "completion). Please reduce the length of the prompt or of the completion."
        )
    return RequestRejected(f"{_what_fits(limits)} However, {asked}", code=TOO_LONG, param="messages")


def _too_long_to_land(prompt_tokens: int, limits: Limits) -> RequestRejected:
    return RequestRejected(
        f"This server takes prompts of at most {limits.landing_tokens} tokens. However, your prompt has "
        f"{prompt_tokens} tokens. Please shorten the prompt.",
        code=TOO_LONG,
        param="messages",
    )


def _what_fits(limits: Limits) -> str:
    if limits.pool_tokens < limits.context_length:
        return (
            f"This server holds at most {limits.pool_tokens} tokens of one request "
            f"(the model's context length is {limits.context_length} tokens)."
        )
    return f"This model's maximum context length is {limits.context_length} tokens."
