"""Weights of a GGUF file, dequantised once into a safetensors file in the model cache."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.engine.config import ModelConfig
from quiesce.errors import ConfigurationError, MachineLacksError
from quiesce.text.model_cache import make_once

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PERMUTED_FAMILIES = ("llama", "mistral")


def convert(gguf: Path, directory: Path, config: ModelConfig) -> None:
    """Write model.safetensors (float32) into `directory` unless it is there; safe in several processes at once."""
    make_once(directory / "model.safetensors", lambda path: _write(gguf, path, config))


def _write(gguf: Path, path: Path, config: ModelConfig) -> None:
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import save_file

    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for tensor in GGUFReader(gguf).tensors:
        values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        tensors[hub_name(tensor.name)] = _unpermuted(tensor.name, values, config)
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except OSError as error:
        raise MachineLacksError(
            f"the converted weights cannot be written to {path.parent} ({error}).",
            remedy="Free some space, or set QUIESCE_CACHE to another directory.",
        ) from error


def hub_name(name: str) -> str:
    """`blk.3.attn_q.weight` to `model.layers.3.self_attn.q_proj.weight`. Raises ConfigurationError if unknown."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if not match or match[2] not in _NAMES:
        raise ConfigurationError([f"the GGUF file has a tensor {name} that its architecture should not have"])
    layer = f"model.layers.{match[1]}." if match[1] is not None else ""
    return f"{layer}{_NAMES[match[2]]}.{match[3]}"


def _unpermuted(name: str, values: npt.NDArray[Any], config: ModelConfig) -> npt.NDArray[np.float32]:
    """GGUF files of Llama store q and k rotated pairwise (0, 1), (2, 3)...; Hugging Face's order is halves."""
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[-2])
    if heads is None or config.family not in _PERMUTED_FAMILIES:
        return values
    pairs = values.reshape(heads, config.head_dim // 2, 2, -1).swapaxes(1, 2)
    return np.ascontiguousarray(pairs).reshape(values.shape)
