"""Rotary frequencies with their scalings, computed as `transformers` does so that angles agree to the last bit."""

from __future__ import annotations

import math

import numpy as np
import torch

from quiesce.engine.config import ModelConfig, Rope


def rotary_frequencies(config: ModelConfig) -> tuple[np.ndarray, float]:
    """Angle per position, float32 (head_dim / 2,), and the factor on sine and cosine (1.0 except for yarn)."""
    rope, parameters = config.rope, dict(config.rope.parameters)
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    attention_factor = 1.0
    if rope.kind == "linear":
        frequencies = frequencies / parameters["factor"]
    elif rope.kind == "llama3":
        frequencies = _llama3(frequencies, parameters)
    elif rope.kind == "yarn":
        frequencies = _yarn(config, parameters)
        attention_factor = _yarn_attention_factor(parameters)
    return np.ascontiguousarray(frequencies.numpy(), dtype=np.float32), attention_factor


def _llama3(frequencies: torch.Tensor, parameters: dict[str, float]) -> torch.Tensor:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    factor, original = parameters["factor"], parameters["original_max_position_embeddings"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    wavelengths = 2 * math.pi / frequencies
    scaled = torch.where(wavelengths > original / low, frequencies / factor, frequencies)
    blend = (original / wavelengths - low) / (high - low)
    blended = (1 - blend) * scaled / factor + blend * scaled
    between = ~(wavelengths < original / high) & ~(wavelengths > original / low)
    return torch.where(between, blended, scaled)


def _yarn(config: ModelConfig, parameters: dict[str, float]) -> torch.Tensor:
    """Interpolated and extrapolated frequencies, blended by a ramp over the dimensions."""
    powers = config.rope.theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim)
    low, high = _yarn_range(config.rope, config.head_dim, parameters)
    ramp = torch.clamp((torch.arange(config.head_dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
    extrapolation = 1 - ramp
    return (1.0 / (parameters["factor"] * powers)) * (1 - extrapolation) + (1.0 / powers) * extrapolation


def _yarn_range(rope: Rope, head_dim: int, parameters: dict[str, float]) -> tuple[float, float]:
    def dimension(rotations: float) -> float:
        original = parameters["original_max_position_embeddings"]
        return (head_dim * math.log(original / (rotations * 2 * math.pi))) / (2 * math.log(rope.theta))

    low, high = dimension(parameters.get("beta_fast", 32.0)), dimension(parameters.get("beta_slow", 1.0))
    if parameters.get("truncate", 1.0):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    return low, high + 0.001 if low == high else high


def _yarn_attention_factor(parameters: dict[str, float]) -> float:
    if "attention_factor" in parameters:
        return parameters["attention_factor"]

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(parameters["factor"]) + 1.0 if parameters["factor"] > 1 else 1.0

    if parameters.get("mscale") and parameters.get("mscale_all_dim"):
        return scale(parameters["mscale"]) / scale(parameters["mscale_all_dim"])
    return scale(1.0)
