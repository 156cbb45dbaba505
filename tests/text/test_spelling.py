from __future__ import annotations

import json

from tokenizers import Tokenizer

from quiesce.text.model import TextModel
from quiesce.text.spelling import Spelling


def test_every_byte_of_tiny_is_itself_and_special_tokens_are_their_text() -> None:
    model = TextModel.load("tiny")
    assert [model.spell(byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert model.spell(257) == b"<|im_end|>"
    assert model.spell(9999) == b""


def test_decoding_whole_ids_keeps_special_tokens() -> None:
    model = TextModel.load("tiny")
    assert model.decode([104, 0xC3, 0xA9, 257]) == "hé<|im_end|>"


def test_byte_fallback_and_marked_spaces() -> None:
    """As tokenizers made from SentencePiece write them."""
    vocabulary = {"<unk>": 0, "<0xE2>": 1, "\u2581hi": 2}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True, "unk_token": "<unk>"}
    spelling = Spelling(Tokenizer.from_str(json.dumps({"version": "1.0", "model": model})), byte_level=False)
    assert [spelling.spell(token) for token in (1, 2)] == [b"\xe2", b" hi"]
