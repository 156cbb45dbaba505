"""Config and tokenizer of a GGUF file, written as a directory in Hugging Face's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quiesce.errors import ConfigurationError, MachineLacksError, in_checkout

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_CONTROL_TOKEN, _USER_TOKEN = 3, 4
_GPT4_LIKE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{DIGITS}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write(gguf: Path, directory: Path) -> None:
    """Write config.json, tokenizer.json and tokenizer_config.json of `gguf` into the new `directory`.

    Raises ConfigurationError when the file is damaged, or of an architecture or tokenizer that is not supported.
    """
    fields = read_fields(gguf)
    files = {
        "config.json": model_config(fields),
        "tokenizer.json": tokenizer(fields),
        "tokenizer_config.json": tokenizer_config(fields),
    }
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def read_fields(gguf: Path) -> dict[str, Any]:
    """All key-value fields of the file's header, and `tensor_names`. Raises ConfigurationError, MachineLacksError."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise MachineLacksError("reading a GGUF file needs the gguf library.", remedy=in_checkout("serve")) from None
    try:
        reader = GGUFReader(gguf)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise ConfigurationError([f"{gguf} cannot be read as a GGUF file: {error}"]) from error
    return fields | {"tensor_names": [tensor.name for tensor in reader.tensors]}


def model_config(fields: dict[str, Any]) -> dict[str, Any]:
    """config.json of the model. Raises ConfigurationError for what is not supported."""
    architecture = str(fields.get("general.architecture"))
    _refuse(architecture not in _ARCHITECTURES, f"GGUF architecture {architecture!r} is not supported")
    _refuse("rope_freqs.weight" in fields["tensor_names"], "GGUF rope factors (rope_freqs.weight) are not supported")
    heads = fields[f"{architecture}.attention.head_count"]
    hidden = fields[f"{architecture}.embedding_length"]
    theta = fields.get(f"{architecture}.rope.freq_base", 10_000.0)
    head_dim = fields.get(f"{architecture}.attention.key_length", hidden // heads)
    _refuse(fields.get(f"{architecture}.rope.dimension_count", head_dim) != head_dim, "partial rope is not supported")
    return {
        "architectures": [_ARCHITECTURES[architecture]],
        "model_type": architecture,
        "hidden_size": hidden,
        "num_hidden_layers": fields[f"{architecture}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get(f"{architecture}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": fields[f"{architecture}.feed_forward_length"],
        "max_position_embeddings": fields[f"{architecture}.context_length"],
        "rms_norm_eps": float(f"{fields[f'{architecture}.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta} | _rope_scaling(fields, architecture),
        "hidden_act": "silu",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": "output.weight" not in fields["tensor_names"],
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }


def _rope_scaling(fields: dict[str, Any], architecture: str) -> dict[str, Any]:
    kind = fields.get(f"{architecture}.rope.scaling.type", "none")
    if kind == "none":
        return {"rope_type": "default"}
    _refuse(kind not in ("linear", "yarn"), f"GGUF rope scaling {kind!r} is not supported")
    scaling = {"rope_type": kind, "factor": fields[f"{architecture}.rope.scaling.factor"]}
    original = fields.get(f"{architecture}.rope.scaling.original_context_length")
    return scaling | ({"original_max_position_embeddings": original} if original else {})


def tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """tokenizer.json: byte-level BPE with the file's vocabulary and merges. Raises ConfigurationError."""
    model = fields.get("tokenizer.ggml.model")
    _refuse(model != "gpt2", f"GGUF tokenizer {model!r} is not supported (only byte-level BPE)")
    texts: list[str] = fields["tokenizer.ggml.tokens"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": _added_tokens(fields),
        "normalizer": {"type": "NFC"} if fields.get("tokenizer.ggml.pre") == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*_split(fields), byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "ignore_merges": fields.get("tokenizer.ggml.pre") in ("llama-bpe", "llama3"),
            "vocab": {text: token for token, text in enumerate(texts)},
            "merges": [merge.split(" ", 1) for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def _added_tokens(fields: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = fields.get("tokenizer.ggml.token_type") or []
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": token, "content": fields["tokenizer.ggml.tokens"][token], "special": kind == _CONTROL_TOKEN} | plain
        for token, kind in enumerate(kinds)
        if kind in (_CONTROL_TOKEN, _USER_TOKEN)
    ]


def _split(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """How text is cut before merging: the parts of a Sequence pre-tokenizer that come before the byte mapping."""
    kind = fields.get("tokenizer.ggml.pre", "default")
    gpt2 = {"type": "Split", "pattern": {"Regex": _GPT2}, "behavior": "Isolated", "invert": False}
    if kind in ("smollm", "starcoder", "refact", "command-r"):
        return [{"type": "Digits", "individual_digits": True}, gpt2]
    if kind in ("gpt-2", "default"):
        return [gpt2]
    digits = {"qwen2": "", "llama-bpe": "{1,3}", "llama3": "{1,3}", "smaug-bpe": "{1,3}"}.get(kind)
    if digits is None:
        raise ConfigurationError([f"GGUF pre-tokenizer {kind!r} is not supported; {_REMEDY}"])
    return [gpt2 | {"pattern": {"Regex": _GPT4_LIKE.replace("{DIGITS}", digits)}}]


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by role, and the chat template."""
    texts = fields["tokenizer.ggml.tokens"]
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {role: fields.get(f"tokenizer.ggml.{name}_token_id") for role, name in roles.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "add_bos_token": bool(fields.get("tokenizer.ggml.add_bos_token", False)),
        "model_max_length": fields[f"{fields['general.architecture']}.context_length"],
        **{f"{role}_token": texts[token] for role, token in ids.items() if token is not None},
        **({"chat_template": fields["tokenizer.chat_template"]} if "tokenizer.chat_template" in fields else {}),
    }


_REMEDY = "give --model the model's Hugging Face directory instead"


def _refuse(wrong: bool, why: str) -> None:
    if wrong:
        raise ConfigurationError([f"{why}; {_REMEDY}"])
