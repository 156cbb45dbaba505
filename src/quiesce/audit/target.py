"""What is known of the audited endpoint before anything is planted."""

from __future__ import annotations

import msgspec

GUESSED_TOKENS_PER_CHAR = 0.4
"""Of prompts full of markers, by common tokenizers; a tokenizer of bytes has 1."""

GUESSED_TOKENS_PER_WORD = 1.1


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`tokens_per_char` is of donors' text; `tokens_per_word` and `frame_tokens` are of filler and what surrounds it.

    Without `measured` these are guesses (a dry run asks nothing). `context_tokens` and `pool_tokens` are what the
    endpoint, or whoever audits it, says. `ttft_s` is a donor's time to its first token among others.
    """

    url: str
    model: str = ""
    server: str = ""
    context_tokens: int | None = None
    pool_tokens: int | None = None
    length_field: str = "max_tokens"
    has_usage: bool = False
    has_tokenizer: bool = False
    measured: bool = False
    tokens_per_char: float = GUESSED_TOKENS_PER_CHAR
    tokens_per_word: float = GUESSED_TOKENS_PER_WORD
    frame_tokens: float = 60.0
    ttft_s: float = 0.0

    def chars_for(self, tokens: int) -> int:
        return int(tokens / self.tokens_per_char)

    def words_for(self, tokens: int) -> int:
        return max(1, round((tokens - self.frame_tokens) / self.tokens_per_word))
