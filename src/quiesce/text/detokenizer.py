"""Token ids to text, piece by piece, without ever showing half a character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

_REPLACEMENT = "\ufffd"
_MOST_HELD = 3
"""An unfinished character has at most three bytes; each may show as one replacement character."""

_LONG_WINDOW_TOKENS = 32
_CUTS = 16
_CONTEXT_TOKENS = 8


class Decoder(Protocol):
    """The part of `tokenizers.Tokenizer` that is needed here."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...


class Detokenizer:
    """Incremental decoding of one answer.

    All pushed text plus `flush()` equals decoding all tokens at once. (One exception: tokenizers with byte fallback,
    and only where the bytes are no UTF-8, because their full decode changes characters that were complete before.)

    A window of tokens is decoded anew on each push; it starts where the text is known to be whole, so it stays short.
    Trailing replacement characters may be the start of a character that later tokens complete, and are held back.
    """

    def __init__(self, decoder: Decoder, special_ids: frozenset[int], prompt_tail: Sequence[int] = ()) -> None:
        self._decoder = decoder
        self._special_ids = special_ids
        self._window = self._whole_context(prompt_tail)
        self._shown = self._decode(self._window)
        self._fresh = len(self._window)

    def push(self, token_ids: Iterable[int]) -> str:
        """Take the next tokens and return the text that is certain now, possibly ""."""
        new = [token for token in token_ids if token not in self._special_ids]
        if not new:
            return ""
        self._window += new
        text = self._decode(self._window)
        if self._is_unsettled(text):
            return ""
        whole = _certain(text) if self._is_long() else text.rstrip(_REPLACEMENT)
        piece = whole[len(self._shown) :]
        self._shown = max(self._shown, whole, key=len)
        self._shorten(text)
        return piece

    def flush(self) -> str:
        """The answer is over: return what was held back, broken characters as U+FFFD."""
        text = self._decode(self._window)
        rest, self._shown = text[len(self._shown) :], text
        return rest

    def _is_unsettled(self, text: str) -> bool:
        """Byte fallback shows a whole run of bytes as broken while its last character is unfinished: wait for that."""
        return text.endswith(_REPLACEMENT) and not (text.startswith(self._shown) or self._is_long())

    def _is_long(self) -> bool:
        """So much is no unfinished character but bytes that are no text."""
        return len(self._window) > _LONG_WINDOW_TOKENS

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._decoder.decode(token_ids, skip_special_tokens=False)

    def _whole_context(self, prompt_tail: Sequence[int]) -> list[int]:
        """The prompt's last tokens: some tokenizers need them to know whether the answer starts with a space."""
        tail = [token for token in prompt_tail[-_CONTEXT_TOKENS:] if token not in self._special_ids]
        starts = (tail[start:] for start in range(len(tail)))
        return next((context for context in starts if _REPLACEMENT not in self._decode(context)), [])

    def _shorten(self, text: str) -> None:
        """Let the window start later, at a point where the text is whole."""
        if not text.endswith(_REPLACEMENT):
            self._restart(self._fresh)
        elif self._is_long():
            self._restart_inside(text)

    def _restart(self, start: int) -> None:
        """Keep the tokens from `start` as context; all of their text has been shown."""
        self._window = self._window[start:]
        self._fresh = len(self._window)
        self._shown = self._decode(self._window)

    def _restart_inside(self, text: str) -> None:
        """A long run of bytes that are no UTF-8: cut it where the halves decode to the same text as the whole.

        The second half must be longer than what is held back, so that all of the first was shown.
        """
        for start in range(len(self._window) - 1, len(self._window) - _CUTS, -1):
            head, tail = self._decode(self._window[:start]), self._decode(self._window[start:])
            if len(tail) > _MOST_HELD and head + tail == text:
                self._window, self._fresh = self._window[start:], 0
                self._shown = _certain(tail)
                return


def _certain(text: str) -> str:
    """`text` without the replacement characters at its end that later tokens may turn into something else."""
    for _ in range(_MOST_HELD):
        text = text.removesuffix(_REPLACEMENT)
    return text
