"""Names and shapes of the weights of a family, by the names of Hugging Face. Needs no torch."""

from __future__ import annotations

import math

from quiesce.engine.config import ModelConfig

_FLOAT32_BYTES = 4


def weights_bytes(config: ModelConfig) -> int:
    """Size of all weights as float32, biases left out."""
    return _FLOAT32_BYTES * sum(math.prod(shape) for shape in tensor_shapes(config).values())


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights of the family, biases left out."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden),
        "model.norm.weight": (config.hidden,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden)
    for layer in range(config.layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer_shapes(config).items()}
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (config.hidden,),
        "post_attention_layernorm.weight": (config.hidden,),
        "self_attn.q_proj.weight": (queries, config.hidden),
        "self_attn.k_proj.weight": (keys, config.hidden),
        "self_attn.v_proj.weight": (keys, config.hidden),
        "self_attn.o_proj.weight": (config.hidden, queries),
        "mlp.gate_proj.weight": (config.intermediate, config.hidden),
        "mlp.up_proj.weight": (config.intermediate, config.hidden),
        "mlp.down_proj.weight": (config.hidden, config.intermediate),
    }
    norms = {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
    return shapes | norms if config.qk_norm else shapes
