"""The `tiny` model's vocabulary: one token per byte, and three special tokens.

`tiny` exists only in memory: its weights are drawn from a seed (`engine`), its tokenizer is written here. Token id
n < 256 is byte n, so a prompt's token ids can be read off its UTF-8 bytes.
"""

from __future__ import annotations

import json

NAME = "tiny"
CONTEXT_LENGTH = 1 << 20

BYTE_TOKENS = 256
IM_START, IM_END, END_OF_TEXT = 256, 257, 258
SPECIAL_TOKENS = {"<|im_start|>": IM_START, "<|im_end|>": IM_END, "<|endoftext|>": END_OF_TEXT}
USED_TOKENS = BYTE_TOKENS + len(SPECIAL_TOKENS)
"""Only ids below this are ever produced."""

VOCAB_SIZE = 320
"""Rows of the embedding; the ones from `USED_TOKENS` on are padding."""

EOS_TOKEN_IDS = (IM_END,)

CHAT_TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
Call a function with <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>. There are:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{{ message['content'] -}}
{%- for call in message['tool_calls'] or [] -%}
<tool_call>{{ call['function'] | tojson }}</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
"""ChatML; tools as Hermes has them."""


def byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each of the 256 bytes (GPT-2's table)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    unprintable = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + rank) for rank, byte in enumerate(unprintable)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]


def tokenizer_json() -> str:
    """The tokenizer in the format of the `tokenizers` library: byte-level BPE without merges."""
    added = [
        {"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": True}
        for text, token in SPECIAL_TOKENS.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())} | SPECIAL_TOKENS
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        }
    )
