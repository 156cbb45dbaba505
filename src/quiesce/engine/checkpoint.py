"""Weights by their Hugging Face names, memory-mapped from safetensors files, or drawn from a seed for `tiny`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from quiesce.engine.config import ModelConfig
from quiesce.engine.shapes import tensor_shapes
from quiesce.engine.weight_files import tensor_files
from quiesce.errors import ConfigurationError

_SAMPLES = 8
_SAMPLE_FLOATS = 1024
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class Checkpoint:
    """`get(name)` gives a tensor as stored. `names` is sorted."""

    def __init__(self, names: list[str], read: Callable[[str], torch.Tensor]) -> None:
        self.names = sorted(names)
        self._known = frozenset(names)
        self._read = read

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor, float32, float16 or bfloat16. Raises ConfigurationError when missing or of another shape."""
        if name not in self._known:
            raise ConfigurationError([f"the checkpoint has no tensor {name}"])
        tensor = self._read(name)
        if tuple(tensor.shape) != shape or tensor.dtype not in _FLOATS:
            found = f"{tuple(tensor.shape)} {tensor.dtype}"
            raise ConfigurationError([f"tensor {name} is {found} where floats of shape {shape} were expected"])
        return tensor

    def fingerprint(self, config: ModelConfig) -> str:
        """32 hex digits that workers of a pair compare: config (without name and limits), and samples of every tensor.

        It tells models and fine-tunes apart; it is no defence against someone who changes single weights on purpose.
        """
        arithmetic = msgspec.structs.replace(config, name="", context_length=0)
        digest = hashlib.blake2b(msgspec.json.encode(arithmetic), digest_size=16, person=b"quiesce-model")
        for name in self.names:
            tensor = self._read(name).reshape(-1)
            digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype};".encode())
            step = max(1, tensor.numel() // _SAMPLES)
            for start in range(0, tensor.numel(), step):
                sample = tensor[start : start + min(step, _SAMPLE_FLOATS)].contiguous()
                digest.update(sample.view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def open_checkpoint(directory: Path) -> Checkpoint:
    """The *.safetensors of a directory, as its index says if there is one. Raises ConfigurationError."""
    files = tensor_files(directory)
    try:
        opened: dict[str, Any] = {
            file: safe_open(directory / file, framework="pt") for file in sorted(set(files.values()))
        }
        names = files if files.keys() - {""} else dict.fromkeys(opened[files[""]].keys(), files[""])
    except (OSError, SafetensorError) as error:
        raise ConfigurationError([f"the weights in {directory} cannot be read: {error}"]) from error

    def read(name: str) -> torch.Tensor:
        tensor: torch.Tensor = opened[names[name]].get_tensor(name)
        return tensor

    return Checkpoint(list(names), read)


def draw_tiny(config: ModelConfig, seed: int = 0) -> Checkpoint:
    """Random weights whose answers depend strongly on the whole context: a wrong page shows at once."""
    generator = torch.Generator().manual_seed(seed)
    gains = {"q_proj": 2.0, "k_proj": 2.0, "v_proj": 1.5, "o_proj": 1.5, "embed_tokens": math.sqrt(config.hidden)}
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in sorted(tensor_shapes(config).items()):
        if len(shape) == 1:
            tensors[name] = torch.ones(shape)
        else:
            gain = next((gain for part, gain in gains.items() if part in name), 1.0)
            tensors[name] = torch.randn(shape, generator=generator) * (gain / math.sqrt(shape[1]))
    return Checkpoint(list(tensors), tensors.__getitem__)
