"""How many tokens a text has at least, found without tokenising all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

_FIRST_SLICE_CHARACTERS = 1 << 16
_GROWTH = 4
_NFC_SHRINKS = 4
"""Composing shortens UTF-8 by less than this (worst: Greek letters with three marks, Hangul syllables)."""


class LengthBound:
    """Lower bounds for one tokenizer; 0 where nothing can be said (unknown normalizers, tokens that swallow spaces)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        description = json.loads(tokenizer.to_str())
        self._tokenizer = tokenizer
        self._added = [token["content"] for token in description.get("added_tokens") or []]
        self._shrinks = _shrinkage(description)
        plain = (text for text in tokenizer.get_vocab(with_added_tokens=False) if text not in set(self._added))
        self.byte_level = byte_level = _is_byte_level(description)
        self._longest = max((len(text) if byte_level else len(text.encode()) for text in plain), default=1)
        self._sliceable = bool(self._shrinks) and byte_level
        self._margin = max(map(len, self._added), default=0)

    def cheap(self, text: str) -> int:
        """No token is longer than the longest one; added tokens are counted apart. Takes microseconds per megabyte."""
        if not self._shrinks:
            return 0
        in_added = sum(text.count(token) * len(token.encode()) for token in self._added)
        return max(0, len(text.encode()) - in_added) // (self._longest * self._shrinks)

    def growing(self, text: str) -> Iterator[int]:
        """Better and better bounds from longer and longer beginnings of `text`, none of which is all of it.

        Byte-level tokenizers cut text into words from left to right, so cutting the text short changes no token before
        the last word, or before an added token that the cut went through.
        """
        length = _FIRST_SLICE_CHARACTERS
        while self._sliceable and length * 2 < len(text):
            yield self._settled_tokens(text[:length])
            length *= _GROWTH

    def _settled_tokens(self, beginning: str) -> int:
        encoding = self._tokenizer.encode_batch([beginning], add_special_tokens=False)[0]
        words, offsets = encoding.word_ids, encoding.offsets
        last_word, border = words[-1], len(beginning) - self._margin
        settled = len(words)
        while settled and (words[settled - 1] == last_word or offsets[settled - 1][1] > border):
            settled -= 1
        return settled


def _shrinkage(description: dict[str, Any]) -> int:
    """By what factor the tokenizer may shorten a text before cutting it: 0 for not known."""
    if any(token["lstrip"] or token["rstrip"] for token in description.get("added_tokens") or []):
        return 0
    normalizer = description.get("normalizer")
    if normalizer is None:
        return 1
    return _NFC_SHRINKS if normalizer.get("type") == "NFC" else 0


def _is_byte_level(description: dict[str, Any]) -> bool:
    pre = description.get("pre_tokenizer") or {}
    parts = pre.get("pretokenizers", [pre])
    return bool(parts) and parts[-1].get("type") == "ByteLevel"
