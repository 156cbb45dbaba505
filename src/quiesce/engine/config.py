"""What a model is, read from config.json; anything the engine would compute wrongly is refused here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from quiesce.errors import ConfigurationError
from quiesce.kv.layout import Layout
from quiesce.text import tiny
from quiesce.text.json_file import read_json

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "MistralForCausalLM": "mistral",
}
ROPE_KINDS = ("default", "linear", "llama3", "yarn")


class Rope(msgspec.Struct, frozen=True):
    """Rotary embedding. `parameters` are the scaling's own, by their names in config.json, sorted by name."""

    theta: float = 10_000.0
    kind: str = "default"
    parameters: tuple[tuple[str, float], ...] = ()


class ModelConfig(msgspec.Struct, frozen=True):
    """Sizes in elements, `context_length` in tokens. Ids below `used_vocab` can be drawn, the rest is padding."""

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab_size: int
    context_length: int
    norm_eps: float = 1e-6
    rope: Rope = Rope()
    tied_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = ()
    used_vocab: int = 0

    @property
    def qk_norm(self) -> bool:
        return self.family == "qwen3"

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads

    def layout(self, page_size: int) -> Layout:
        """How this model's KV lies in pages of `page_size` tokens."""
        return Layout(layers=self.layers, kv_heads=self.kv_heads, head_dim=self.head_dim, page_size=page_size)


TINY = ModelConfig(
    name=tiny.NAME,
    family="llama",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=1,
    head_dim=16,
    intermediate=128,
    vocab_size=tiny.VOCAB_SIZE,
    context_length=tiny.CONTEXT_LENGTH,
    rope=Rope(theta=1e6),
    eos_token_ids=tiny.EOS_TOKEN_IDS,
    used_vocab=tiny.USED_TOKENS,
)


def read_config(directory: Path, name: str) -> ModelConfig:
    """The config of a prepared model directory. Raises ConfigurationError listing everything unsupported."""
    raw = read_json(directory / "config.json")
    eos = read_json(directory / "generation_config.json", required=False).get("eos_token_id")
    try:
        problems = unsupported(raw | _quantised_beside(directory))
        config = _from_json(raw, name, _ids(raw.get("eos_token_id") if eos is None else eos)) if not problems else TINY
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError([f"model {name}: config.json is malformed: {error!r}"]) from error
    problems = problems or _impossible(config)
    if problems:
        raise ConfigurationError([f"model {name}: {problem}" for problem in problems])
    return config


def with_context_length(config: ModelConfig, context_length: int | None) -> ModelConfig:
    """`config` limited to `context_length` tokens. Raises ConfigurationError when the model cannot hold that many."""
    if context_length is None:
        return config
    if not 0 < context_length <= config.context_length:
        raise ConfigurationError(
            [f"context length {context_length} is outside 1..{config.context_length}, what model {config.name} allows"]
        )
    return msgspec.structs.replace(config, context_length=context_length)


def unsupported(raw: dict[str, Any]) -> list[str]:
    """What in config.json the engine cannot compute, in words; empty when all is well."""
    kind = _rope_of(raw).kind
    window = raw.get("sliding_window") if raw.get("use_sliding_window", True) else None
    layer_types = set(raw.get("layer_types") or ())
    model_type = raw.get("model_type")
    checks = {
        f"architecture {_architecture(raw)} is not one of {', '.join(FAMILIES)}": _architecture(raw) not in FAMILIES,
        f"model_type {model_type!r} is not one of {', '.join(FAMILIES.values())}, although its architecture says "
        f"{_architecture(raw)}": _architecture(raw) in FAMILIES and model_type not in (None, *FAMILIES.values()),
        f"activation {raw.get('hidden_act')!r} is not silu": raw.get("hidden_act", "silu") != "silu",
        f"rope scaling {kind!r} is not one of {', '.join(ROPE_KINDS)}": kind not in ROPE_KINDS,
        f"sliding window attention ({window} tokens) is not supported": _slides(raw, window),
        f"layer types {sorted(layer_types)} are not supported": bool(layer_types - {"full_attention"}),
        "partial rotary embeddings are not supported": _rope_values(raw).get("partial_rotary_factor", 1.0) != 1.0,
        "biases in the MLP are not supported": bool(raw.get("mlp_bias")),
        f"weights quantised with {_quantisation(raw)} are not supported; take the unquantised model or a .gguf "
        "file of it": bool(raw.get("quantization_config")),
    }
    return [problem for problem, holds in checks.items() if holds]


def _quantisation(raw: dict[str, Any]) -> str:
    """The method as the checkpoint names it."""
    said = raw.get("quantization_config")
    method = said.get("quant_method") if isinstance(said, dict) else None
    return str(method or "an unnamed method").upper()


def _quantised_beside(directory: Path) -> dict[str, Any]:
    """What older AWQ and GPTQ checkpoints say in files of their own."""
    for name, method in (("quant_config.json", "awq"), ("quantize_config.json", "gptq")):
        if (directory / name).is_file():
            return {"quantization_config": {"quant_method": method}}
    return {}


def _impossible(config: ModelConfig) -> list[str]:
    """Sizes that no model can have."""
    sizes = (config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim, config.intermediate)
    if min(*sizes, config.vocab_size, config.context_length) < 1:
        return ["a size in config.json is not positive"]
    if config.heads % config.kv_heads:
        return [f"{config.heads} query heads do not divide among {config.kv_heads} KV heads"]
    return []


def _slides(raw: dict[str, Any], window: int | None) -> bool:
    return window is not None and window < int(raw.get("max_position_embeddings", 2048))


def _architecture(raw: dict[str, Any]) -> str:
    return str((raw.get("architectures") or ["unknown"])[0])


def _from_json(raw: dict[str, Any], name: str, eos: tuple[int, ...]) -> ModelConfig:
    heads = int(raw["num_attention_heads"])
    return ModelConfig(
        name=name,
        family=FAMILIES[_architecture(raw)],
        layers=int(raw["num_hidden_layers"]),
        hidden=int(raw["hidden_size"]),
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or raw["hidden_size"] // heads),
        intermediate=int(raw["intermediate_size"]),
        vocab_size=int(raw["vocab_size"]),
        context_length=int(raw.get("max_position_embeddings", 2048)),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope_of(raw),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        eos_token_ids=eos,
        used_vocab=int(raw["vocab_size"]),
    )


def _rope_values(raw: dict[str, Any]) -> dict[str, Any]:
    """Rope settings of both spellings: `rope_parameters` (transformers 5), `rope_theta` and `rope_scaling` (before)."""
    top = {"rope_theta": raw.get("rope_theta"), "partial_rotary_factor": raw.get("partial_rotary_factor")}
    merged = {key: value for key, value in top.items() if value is not None}
    return merged | (raw.get("rope_scaling") or {}) | (raw.get("rope_parameters") or {})


def _rope_of(raw: dict[str, Any]) -> Rope:
    values = _rope_values(raw)
    kind = str(values.get("rope_type") or values.get("type") or "default")
    numbers = {key: float(value) for key, value in values.items() if isinstance(value, int | float)}
    theta = numbers.pop("rope_theta", 10_000.0)
    numbers.setdefault("original_max_position_embeddings", float(raw.get("max_position_embeddings", 2048)))
    return Rope(theta=theta, kind=kind, parameters=() if kind == "default" else tuple(sorted(numbers.items())))


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)
