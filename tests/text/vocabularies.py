"""Small tokenizers of the kinds that models use, made in memory."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from quiesce.text.tiny import byte_characters

SPECIAL_ID = 300


def byte_level(normalizer: dict[str, Any] | None = None) -> Tokenizer:
    """Byte-level BPE as GPT-2 cuts words: 256 bytes, a few merges, one special token."""
    letters = byte_characters()
    merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["Ġ", "w"], ["o", "r"], ["l", "d"], ["ð", "Ł"], ["Ġ", "ð"]]
    tokens = [*letters, *("".join(merge) for merge in merges)]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "normalizer": normalizer,
                "added_tokens": [{"id": SPECIAL_ID, "content": "<|end|>"} | plain],
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
                "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
                "model": {
                    "type": "BPE",
                    "vocab": {text: index for index, text in enumerate(tokens)} | {"<|end|>": SPECIAL_ID},
                    "merges": merges,
                },
            }
        )
    )


def byte_fallback() -> Tokenizer:
    """SentencePiece as Llama 2 has it: words with a leading mark, single bytes as <0xNN>; byte n is token n."""
    tokens = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁hello", "▁world", "▁", "s", "▁▁", "é"]
    return Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "decoder": {
                    "type": "Sequence",
                    "decoders": [
                        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                        {"type": "ByteFallback"},
                        {"type": "Fuse"},
                        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                    ],
                },
                "model": {"type": "BPE", "vocab": {text: n for n, text in enumerate(tokens)}, "merges": []},
            }
        )
    )
