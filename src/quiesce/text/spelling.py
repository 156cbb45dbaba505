"""How a single token is written: its bytes, which need not be whole characters."""

from __future__ import annotations

import re

from tokenizers import Tokenizer

from quiesce.text.tiny import byte_characters

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
_SENTENCEPIECE_SPACE = "\u2581"


class Spelling:
    """Token ids to bytes, for one tokenizer. `byte_level`: its tokens are written in GPT-2's table of bytes."""

    def __init__(self, tokenizer: Tokenizer, *, byte_level: bool) -> None:
        self._tokenizer = tokenizer
        self._added = tokenizer.get_added_tokens_decoder()
        self._bytes = {character: byte for byte, character in enumerate(byte_characters())} if byte_level else {}

    def spell(self, token_id: int) -> bytes:
        """UTF-8, or a part of it; empty for an id that the tokenizer does not know."""
        if token_id in self._added:
            content: str = self._added[token_id].content
            return content.encode()
        token: str = self._tokenizer.id_to_token(token_id) or ""
        if self._bytes and all(character in self._bytes for character in token):
            return bytes(self._bytes[character] for character in token)
        if found := _BYTE_FALLBACK.fullmatch(token):
            return bytes([int(found[1], 16)])
        return token.replace(_SENTENCEPIECE_SPACE, " ").encode()
