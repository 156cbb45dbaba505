"""What a start will do and whether it can work, known before any process begins."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from quiesce.cli.serve_settings import ServeSettings
from quiesce.cli.settings import compose
from quiesce.cli.survey import Survey, survey
from quiesce.cli.tree import SERVE
from quiesce.engine.config import TINY
from quiesce.errors import ConfigurationError
from quiesce.text import catalog
from quiesce.worker.sizes import PoolSize

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 256,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text("{}")
    save_file({"x": np.ones(4, np.float32)}, tmp_path / "model.safetensors")
    return tmp_path


def surveyed(model: str | Path = "tiny", **flags: str) -> Survey:
    composed = compose(SERVE, {"model": str(model), **flags}, environ={})
    return survey(catalog.resolve(str(model)), composed.build(ServeSettings), composed, lambda _: None)


def problems(model: str | Path = "tiny", **flags: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        surveyed(model, **flags)
    return caught.value.problems


def test_a_directory_is_read_without_loading_it(model: Path) -> None:
    found = surveyed(model)
    assert (found.config.context_length, found.converts_to) == (256, None)
    assert found.prefill_pool is found.decode_pool


def test_pools_are_as_asked_for_each_role(model: Path) -> None:
    found = surveyed(model, prefill_pool_tokens="500", decode_pool_tokens="512")
    assert found.prefill_pool == PoolSize(496, "496 in whole pages of 16", 500)
    assert found.decode_pool == PoolSize(512, "", 512)


def test_tiny_takes_a_few_contexts() -> None:
    assert surveyed(context_length="4096").decode_pool.tokens == 4 * 4096


def test_sizes_are_checked_with_the_numbers_that_were_typed(model: Path) -> None:
    assert problems(model, context_length="300") == ["--context-length 300 is more than the model's 256"]
    first, second = problems(model, prefill_pool_tokens="100", decode_pool_tokens="200")
    assert first.startswith(
        "the model's context of 256 tokens does not fit the KV pool of 100 tokens (96 in whole pages"
    )
    assert "a larger --prefill-pool-tokens" in first
    assert "a larger --decode-pool-tokens" in second


def test_pools_that_are_too_small_by_default_are_one_problem(model: Path) -> None:
    [problem] = problems(model, memory_share="1e-7")
    assert "1e-05 % of free memory" in problem
    assert "a larger --memory-share" in problem


def test_landing_must_hold_the_context(model: Path) -> None:
    found = problems(model, landing="staged", landing_bytes="1000")
    assert len(found) == 1
    assert "a context of 256 tokens does not fit --landing-bytes" in found[0]
    assert surveyed(model, landing="staged", landing_bytes="1000", allow_small_pool="true")


def test_landing_must_be_memory_that_there_is(model: Path) -> None:
    asked = {"landing": "staged", "landing_bytes": str(10**17), "allow_small_pool": "true"}
    assert "is more than the" in problems(model, **asked)[0]


def test_only_pools_that_will_exist_are_checked(model: Path) -> None:
    assert surveyed(model, prefill_pool_tokens="16", mode="aggregated").decode_pool.tokens >= 256
    composed = {"prefill_pool_tokens": "16", "allow_small_pool": "true"}
    assert surveyed(model, **composed).prefill_pool.tokens == 16


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("model.safetensors", b"\x10", "download it again"),
        ("config.json", json.dumps(CONFIG | {"model_type": "gemma3_text"}).encode(), "gemma3_text"),
        ("config.json", json.dumps(CONFIG | {"quantization_config": {"quant_method": "gptq"}}).encode(), "GPTQ"),
    ],
)
def test_what_the_engine_would_refuse_is_refused_here(model: Path, file: str, content: bytes, words: str) -> None:
    (model / file).write_bytes(content)
    assert words in problems(model)[0]


def test_stages_follow_what_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path))
    weights = tmp_path / "model.safetensors"
    found = Survey(TINY, PoolSize(1), PoolSize(1), converts_to=weights, compiles=True)
    assert found.stage() == f"converting weights (once, 433.2 KiB in {tmp_path})"
    weights.touch()
    assert found.stage() == "compiling kernels (once)"
    assert Survey(TINY, PoolSize(1), PoolSize(1)).stage() == "loading the model"
