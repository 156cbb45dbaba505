"""config.json in both spellings, and what malformed ones get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quiesce.engine.config import ModelConfig, read_config
from quiesce.errors import ConfigurationError

PLAIN: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "eos_token_id": [2, 3],
}


def read(tmp_path: Path, **changes: Any) -> ModelConfig:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN | changes))
    return read_config(tmp_path, "some")


def test_defaults_are_those_of_the_format(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert (config.kv_heads, config.head_dim, config.rope.theta, config.rope.kind) == (4, 16, 10_000.0, "default")
    assert config.eos_token_ids == (2, 3)


def test_both_spellings_of_rope_are_one(tmp_path: Path) -> None:
    """transformers 4 wrote rope_theta and rope_scaling, transformers 5 writes rope_parameters."""
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    old = read(tmp_path, rope_theta=5e5, rope_scaling={"rope_type": "llama3"} | scaling)
    older = read(tmp_path, rope_theta=5e5, rope_scaling={"type": "llama3"} | scaling)
    new = read(tmp_path, rope_parameters={"rope_theta": 5e5, "rope_type": "llama3"} | scaling)
    assert old.rope == older.rope == new.rope
    assert (new.rope.kind, new.rope.theta, dict(new.rope.parameters)) == ("llama3", 5e5, scaling)


def test_generation_config_has_the_last_word_on_eos(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert read(tmp_path).eos_token_ids == (7,)


def test_everything_unsupported_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, architectures=["GPT2LMHeadModel"], hidden_act="gelu", mlp_bias=True, sliding_window=8)
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantised with AWQ are not supported"),
        ({"quantization_config": {"bits": 4}}, "an unnamed method"),
        ({"model_type": "gemma3_text"}, "model_type 'gemma3_text' is not one of llama, qwen2, qwen3, mistral"),
    ],
)
def test_what_only_looks_like_a_known_model_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"(?i){words}"):
        read(tmp_path, **changes)


@pytest.mark.parametrize(("name", "method"), [("quant_config.json", "AWQ"), ("quantize_config.json", "GPTQ")])
def test_older_quantised_checkpoints_say_so_in_a_file_of_their_own(tmp_path: Path, name: str, method: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigurationError, match=f"quantised with {method}"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": "many"}, "malformed"),
        ({"hidden_size": None}, "malformed"),
        ({"num_hidden_layers": 0}, "not positive"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"rope_parameters": [1]}, "malformed"),
    ],
)
def test_malformed_configs_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read(tmp_path, **changes)


def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path) -> None:
    for content in ("", "[]", "{"):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ConfigurationError, match=r"config\.json"):
            read_config(tmp_path, "some")
