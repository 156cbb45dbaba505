"""GGUF files: names, the rope permutation, dequantising, and one conversion by many processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import load_file
from transformers import LlamaConfig, Qwen2Config

from quiesce.engine.engine import Engine
from quiesce.engine.gguf_weights import hub_name
from quiesce.errors import ConfigurationError
from quiesce.text.tiny import byte_characters
from tests.engine.conftest import Seats, oracle_logits, random_ids
from tests.engine.test_families import SIZES, Save

VOCAB = 256
LAYER_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    tops = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem, kind = name.rsplit(".", 1)
    if stem in tops:
        return f"{tops[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_PARTS[part]}.{kind}"


def write_gguf(path: Path, directory: Path, config: Any, architecture: str) -> None:
    """The model of `directory` as llama.cpp's converter writes it: q and k of Llama permuted pairwise."""
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2" if architecture == "qwen2" else "smollm")
    writer.add_token_list(byte_characters())
    writer.add_token_types([1] * VOCAB)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(1)
    for name, values in load_file(directory / "model.safetensors").items():
        heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}.get(name.split(".")[-2][0])
        if architecture == "llama" and heads and name.split(".")[-2] in ("q_proj", "k_proj"):
            halves = values.reshape(heads, 2, -1, values.shape[1])
            values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
        writer.add_tensor(gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_gguf_file_is_the_model_it_was_made_from(
    architecture: str, save_random_model: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written as llama.cpp does, read back: the oracle's logits."""
    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path / "cache"))
    kind = {"llama": LlamaConfig, "qwen2": Qwen2Config}[architecture]
    config = kind(**SIZES | {"vocab_size": VOCAB})
    directory, oracle = save_random_model(config)
    write_gguf(tmp_path / "small.gguf", directory, config, architecture)
    ids = random_ids(60, VOCAB)
    expected = oracle_logits(oracle, ids)[-1]
    seats = Seats(Engine.load(str(tmp_path / "small.gguf")), 16)
    np.testing.assert_allclose(seats.prefill(ids), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_processes_that_start_together_convert_once(
    save_random_model: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes on an empty cache both load, and agree on the fingerprint; no scratch is left behind."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("QUIESCE_CACHE", str(cache))
    config = LlamaConfig(**SIZES | {"vocab_size": VOCAB})
    directory, _ = save_random_model(config)
    write_gguf(tmp_path / "small.gguf", directory, config, "llama")
    program = "import sys; from quiesce.engine.engine import Engine; print(Engine.load(sys.argv[1]).fingerprint)"
    command = [sys.executable, "-c", program, str(tmp_path / "small.gguf")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert len(set(outputs)) == 1
    assert len(outputs[0].strip()) == 32
    model = next(path for path in (cache / "models").iterdir() if path.is_dir())
    visible = {path.name for path in model.iterdir() if not path.name.endswith(".lock")}
    assert visible == {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}


def test_unknown_tensors_are_refused() -> None:
    assert hub_name("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
    assert hub_name("output_norm.weight") == "model.norm.weight"
    with pytest.raises(ConfigurationError, match=r"ffn_gate_exps"):
        hub_name("blk.0.ffn_gate_exps.weight")
