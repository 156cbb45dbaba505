"""Log probabilities in OpenAI's two shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from quiesce.api.responses import ChatLogprobs, TextLogprobs, TokenLogprob, TopLogprob

Spell = Callable[[int], bytes]
"""A token's bytes."""


class Said(msgspec.Struct, frozen=True):
    """A token of the answer: where its text begins (characters), and how likely it and the most likely ones were.

    `logprob` is None for a prompt's first token: nothing stands before it.
    """

    token_id: int
    offset: int
    logprob: float | None
    top: Sequence[tuple[int, float]]


def chat_logprobs(said: Sequence[Said], spell: Spell) -> ChatLogprobs:
    """As `/v1/chat/completions` shows them."""
    return ChatLogprobs([_chat_entry(token, spell) for token in said])


def _chat_entry(said: Said, spell: Spell) -> TokenLogprob:
    written = spell(said.token_id)
    top = [TopLogprob(shown(spell(token)), logprob, list(spell(token))) for token, logprob in said.top]
    return TokenLogprob(shown(written), said.logprob or 0.0, list(written), top)


def text_logprobs(said: Sequence[Said], spell: Spell) -> TextLogprobs:
    """As `/v1/completions` shows them: the token that was said is always among the most likely ones."""
    return TextLogprobs(
        [token.offset for token in said],
        [token.logprob for token in said],
        [_escaped(spell(token.token_id)) for token in said],
        [_alternatives(token, spell) for token in said],
    )


def _alternatives(token: Said, spell: Spell) -> dict[str, float] | None:
    if token.logprob is None:
        return None
    return {_escaped(spell(each)): value for each, value in (*token.top, (token.token_id, token.logprob))}


def shown(written: bytes) -> str:
    """A token's bytes as text; what is no whole character shows as U+FFFD."""
    return written.decode("utf-8", "replace")


def _escaped(written: bytes) -> str:
    """Text, or `bytes:\\xe2\\x80` for what is none, so that different tokens stay different."""
    try:
        return written.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in written)
