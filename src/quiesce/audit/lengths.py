"""How long the prompts near and over the limits are: numbers alone. Their text is made when it is sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from quiesce.audit import prompts
from quiesce.audit.options import Options
from quiesce.audit.target import Target

MARGIN_TOKENS = 64

MOST_CHARS = 8 << 20
"""Of one prompt: enough for one and a half times a million tokens of common words."""

FILLER_CHARS = sum(len(word) + 1 for word in prompts.FILLER) / len(prompts.FILLER)
"""Characters of a word of filler and its space."""

_HEAD_CHARS = 64
_FIRST = ("over the context", "over the pool", "near the limit", "far over the context")
"""Which are asked when there is not room for all: the first can find a leak, and the last finds what it finds."""


class Length(msgspec.Struct, frozen=True):
    """A prompt of about `tokens`, which are `words` of filler; `cost_tokens` are those and the answer's."""

    role: str
    tokens: int
    words: int
    cost_tokens: int

    @property
    def chars(self) -> int:
        return _HEAD_CHARS + prompts.common_chars(self.words)


def filler_tokens(chars: int, target: Target) -> int:
    """What a prompt of so many characters of filler costs."""
    return math.ceil(chars * target.tokens_per_word / FILLER_CHARS)


def lengths(options: Options, target: Target) -> list[Length]:
    """Near each limit, and over it, in the order in which they are asked; none where no limit is known."""
    return [_length(role, tokens, options, target) for role, tokens in _wanted(options, target)]


def _length(role: str, tokens: int, options: Options, target: Target) -> Length:
    words = target.words_for(tokens)
    chars = _HEAD_CHARS + prompts.common_chars(words)
    return Length(role, tokens, words, filler_tokens(chars, target) + options.answer_tokens)


def _wanted(options: Options, target: Target) -> Iterator[tuple[str, int]]:
    """Without a tokenizer there is more room for error."""
    context = options.context_tokens or target.context_tokens
    pool = options.pool_tokens or target.pool_tokens
    slack = 0.02 if target.has_tokenizer else 0.1
    if context is None:
        return
    short = context if pool is None else min(context, pool)
    yield "near the limit", int(short * (1 - slack)) - options.answer_tokens - MARGIN_TOKENS
    if pool is not None and pool < context:
        yield "over the pool", min(context - MARGIN_TOKENS, int(pool * (1 + slack)) + MARGIN_TOKENS)
    yield "over the context", int(context * (1 + slack)) + MARGIN_TOKENS
    yield "far over the context", int(context * 1.5)


def that_fit(wanted: Sequence[Length], room_tokens: int) -> list[Length]:
    """Those of `wanted` that are to be asked with so many tokens left for them, the most telling first."""
    kept = set()
    for each in sorted(wanted, key=lambda length: _FIRST.index(length.role)):
        if each.chars <= MOST_CHARS and each.cost_tokens <= room_tokens:
            kept.add(each.role)
            room_tokens -= each.cost_tokens
    return [each for each in wanted if each.role in kept]
