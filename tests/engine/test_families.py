"""Every family, with every rope scaling, computes what `transformers` computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from quiesce.engine.engine import Engine
from quiesce.errors import ConfigurationError
from tests.engine.conftest import Seats, oracle_logits, random_ids

Save = Callable[..., tuple[Path, Any]]

VOCAB = 160
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 104,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
LLAMA3: dict[str, Any] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0}
TRAINED_TOKENS: dict[str, Any] = {"original_max_position_embeddings": 64}


def rope(**parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10_000.0} | parameters}


MODELS = {
    "llama": LlamaConfig(**SIZES),
    "llama-tied": LlamaConfig(**SIZES | {"tie_word_embeddings": True}),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True),
    "llama-one-kv-head": LlamaConfig(**SIZES | {"num_key_value_heads": 1}),
    "llama-no-groups": LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
    "llama-linear": LlamaConfig(**SIZES, **rope(rope_type="linear", factor=4.0)),
    "llama-llama3": LlamaConfig(**SIZES, **rope(**LLAMA3, **TRAINED_TOKENS)),
    "llama-yarn": LlamaConfig(**SIZES, **rope(**YARN, **TRAINED_TOKENS)),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=32),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str, save_random_model: Save) -> None:
    """After every position of a prompt, in one chunk, in two, and token by token; and 12 greedy tokens."""
    directory, oracle = save_random_model(MODELS[name])
    seats = Seats(Engine.load(str(directory)), page_size=16)
    ids = random_ids(150, VOCAB)
    expected = oracle_logits(oracle, ids)
    tolerance = 2e-5 * np.abs(expected).max()
    for length in (1, 2, 17, 64, 65, 150):
        np.testing.assert_allclose(seats.prefill(ids[:length]), expected[length - 1], rtol=0, atol=tolerance)
    np.testing.assert_allclose(seats.prefill(ids, cuts=[70]), expected[-1], rtol=0, atol=tolerance)
    seats.prefill(ids[:100])
    for position in range(100, 150):
        logits = seats.decode(ids[position : position + 1].tolist(), [position], [0])[0]
        np.testing.assert_allclose(logits, expected[position], rtol=0, atol=tolerance)
    assert seats.greedy(ids, 12) == greedy_oracle(oracle, ids.tolist(), 12)


def greedy_oracle(oracle: Any, ids: list[int], count: int) -> list[int]:
    for _ in range(count):
        ids = [*ids, int(oracle_logits(oracle, np.array(ids, np.int32))[-1].argmax())]
    return ids[-count:]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_checkpoints_are_computed_in_float32(dtype: torch.dtype, save_random_model: Save) -> None:
    """The values of the file are exact in float32, so nothing is lost against the oracle of the same values."""
    directory, oracle = save_random_model(MODELS["qwen2"], dtype)
    ids = random_ids(40, VOCAB)
    expected = oracle_logits(oracle, ids)[-1]
    np.testing.assert_allclose(
        Seats(Engine.load(str(directory)), 16).prefill(ids), expected, rtol=0, atol=2e-5 * np.abs(expected).max()
    )


def test_sharded_checkpoints_are_the_same_model(save_random_model: Save) -> None:
    """Same weights in one file or in several: same answer, same fingerprint."""
    whole, _ = save_random_model(MODELS["llama"])
    sharded, _ = save_random_model(MODELS["llama"], max_shard_size="100KB")
    assert (sharded / "model.safetensors.index.json").is_file()
    one, other = Engine.load(str(whole)), Engine.load(str(sharded))
    ids = random_ids(20, VOCAB)
    assert np.array_equal(Seats(one, 16).prefill(ids), Seats(other, 16).prefill(ids))
    assert one.fingerprint == other.fingerprint


def test_fingerprints_tell_weights_and_configs_apart(save_random_model: Save) -> None:
    """Neither other weights, nor the same weights turned by another rope, pass as the same model."""
    prints = set()
    for config in (MODELS["llama"], MODELS["llama-linear"], MODELS["llama-llama3"], MODELS["mistral"]):
        directory, _ = save_random_model(config)
        prints.add(Engine.load(str(directory)).fingerprint)
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MistralConfig(**SIZES, sliding_window=64), "sliding window"),
        (Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=64, max_window_layers=1), "sliding"),
        (LlamaConfig(**SIZES, **rope(rope_type="dynamic", factor=2.0)), "rope scaling 'dynamic'"),
        (LlamaConfig(**SIZES, mlp_bias=True), "biases in the MLP"),
        (LlamaConfig(**SIZES, hidden_act="gelu"), "activation 'gelu'"),
        (LlamaConfig(**SIZES | {"hidden_size": 96}, head_dim=24), "head dim 24"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(config: Any, words: str, save_random_model: Save) -> None:
    """Before any weight is used, in words that name the cause."""
    directory, _ = save_random_model(config)
    with pytest.raises(ConfigurationError, match=words):
        Engine.load(str(directory))
