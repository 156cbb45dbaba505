"""The transformer: Llama, Qwen2, Qwen3 and Mistral are one architecture with small differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from quiesce.engine.checkpoint import Checkpoint
from quiesce.engine.config import ModelConfig
from quiesce.engine.crew import Crew
from quiesce.engine.kernels import Kernels
from quiesce.engine.linear import Array, Linear
from quiesce.engine.rope import rotary_frequencies
from quiesce.engine.shapes import tensor_shapes
from quiesce.engine.step import Step
from quiesce.errors import invariant

_NO_NORM = np.empty(0, np.float32)


class Layer:
    """Weights of one block. Projections are fused: q, k, v are one product, gate and up another."""

    def __init__(self, weights: Weights, index: int) -> None:
        at = f"model.layers.{index}."
        self.attention_norm = weights.vector(f"{at}input_layernorm.weight")
        self.mlp_norm = weights.vector(f"{at}post_attention_layernorm.weight")
        norms = [f"{at}self_attn.{which}_norm.weight" for which in "qk"]
        self.q_norm, self.k_norm = (weights.vector(norm) if norm in weights.shapes else _NO_NORM for norm in norms)
        self.qkv = weights.linear(*(f"{at}self_attn.{part}_proj" for part in "qkv"))
        self.out = weights.linear(f"{at}self_attn.o_proj")
        self.gate_up = weights.linear(f"{at}mlp.gate_proj", f"{at}mlp.up_proj")
        self.down = weights.linear(f"{at}mlp.down_proj")


class Weights:
    """Makes the model's parts from a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, kernels: Kernels, deterministic: bool) -> None:
        self.shapes = tensor_shapes(config)
        self._checkpoint = checkpoint
        self._product = kernels.product
        self._deterministic = deterministic

    def vector(self, name: str) -> Array:
        return np.ascontiguousarray(self._tensor(name).float().numpy())

    def matrix(self, name: str) -> Array:
        """float32; a view of the mapped file when that holds float32."""
        values: Array = self._tensor(name).float().numpy()
        return values

    def linear(self, *names: str) -> Linear:
        """The matrices of these names, one under the other, with their biases when the checkpoint has any."""
        parts = [self._tensor(f"{name}.weight") for name in names]
        # Converted copies would double the memory; the file's own pages are shared by all processes.
        mapped = all(part.dtype == torch.float32 for part in parts)
        return Linear(
            parts,
            self._bias(names, parts),
            product=self._product if mapped else None,
            deterministic=self._deterministic,
        )

    def _bias(self, names: tuple[str, ...], parts: list[torch.Tensor]) -> torch.Tensor | None:
        if not any(f"{name}.bias" in self._checkpoint for name in names):
            return None
        sizes = zip(names, parts, strict=True)
        return torch.cat([self._bias_or_zeros(f"{name}.bias", part.shape[0]) for name, part in sizes])

    def _bias_or_zeros(self, name: str, size: int) -> torch.Tensor:
        return self._checkpoint.get(name, (size,)).float() if name in self._checkpoint else torch.zeros(size)

    def _tensor(self, name: str) -> torch.Tensor:
        return self._checkpoint.get(name, self.shapes[name])


class Model:
    """The weights and the forward pass over rows of any number of sequences."""

    def __init__(
        self, config: ModelConfig, checkpoint: Checkpoint, kernels: Kernels, crew: Crew, deterministic: bool
    ) -> None:
        weights = Weights(checkpoint, config, kernels, deterministic)
        self._config, self._kernels, self._crew = config, kernels, crew
        self._embeddings = weights.matrix("model.embed_tokens.weight")
        self._layers = [Layer(weights, index) for index in range(config.layers)]
        self._norm = weights.vector("model.norm.weight")
        self._head = weights.linear("model.embed_tokens" if config.tied_embeddings else "lm_head")
        self._frequencies, self._rope_factor = rotary_frequencies(config)
        self._scale = np.float32(1 / math.sqrt(config.head_dim))
        self._eps = np.float32(config.norm_eps)

    def forward(
        self,
        token_ids: npt.NDArray[np.int32],
        step: Step,
        pool: Array,
        check: Callable[[], None],
        *,
        logits: bool = True,
        last_row_only: bool = False,
    ) -> Array | None:
        """Logits (rows or 1, vocab), or None unless `logits`; K and V of all rows go to their places in `pool`.

        `check` runs before each layer and may raise. Only rows whose logits are wanted go through the rest of the
        last layer.
        """
        known = token_ids.size > 0 and int(token_ids.min()) >= 0 and int(token_ids.max()) < self._config.vocab_size
        invariant(known and token_ids.size == step.rows, "token ids are in the vocabulary, one per row")
        x = self._embeddings[token_ids]
        turn = self._turn(step)
        for index, layer in enumerate(self._layers):
            check()
            last = index == len(self._layers) - 1
            qkv = layer.qkv(self._normalised(x, layer.attention_norm))
            self._store(layer, index, qkv, turn, step, pool)
            if last and not logits:
                return None
            if last and last_row_only:
                x, qkv, step = x[-1:], qkv[-1:], step.last_row()
            x = layer.out.add_to(x, self._attend(qkv, index, step, pool))
            x = layer.down.add_to(x, self._gated(layer.gate_up(self._normalised(x, layer.mlp_norm))))
        return self._logits(x)

    def _turn(self, step: Step) -> tuple[Array, Array]:
        """Cosines and sines (rows, head_dim / 2) of the rows' positions."""
        shape = (step.rows, self._frequencies.size)
        cosines, sines = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self._kernels.angles(step.positions, self._frequencies, np.float32(self._rope_factor), cosines, sines)
        return cosines, sines

    def _normalised(self, x: Array, weight: Array) -> Array:
        out = np.empty_like(x)
        self._kernels.norm(x, weight, self._eps, out)
        return out

    def _store(self, layer: Layer, index: int, qkv: Array, turn: tuple[Array, Array], step: Step, pool: Array) -> None:
        norms = (layer.q_norm, layer.k_norm, self._eps)
        where = (pool, index, step.page_of_row, step.place_of_row)
        self._kernels.rotate_and_store(qkv, self._config.heads, *norms, *turn, *where)

    def _attend(self, qkv: Array, index: int, step: Step, pool: Array) -> Array:
        """(rows, heads * head_dim). Threads take whole spans, or heads when there are few spans."""
        out = np.empty((step.rows, self._config.heads * self._config.head_dim), np.float32)
        spans, kv_heads = len(step.spans), self._config.kv_heads
        by_head = spans < self._crew.threads

        def piece(number: int) -> None:
            span = (0, spans) if by_head else (number, number + 1)
            heads = (number, number + 1) if by_head else (0, kv_heads)
            self._kernels.attend(qkv, step.spans, *span, *heads, pool, index, step.page_table, out, self._scale)

        if self._crew.threads == 1:
            self._kernels.attend(qkv, step.spans, 0, spans, 0, kv_heads, pool, index, step.page_table, out, self._scale)
        else:
            self._crew.share(piece, kv_heads if by_head else spans)
        return out

    def _gated(self, gate_up: Array) -> Array:
        out = np.empty((gate_up.shape[0], gate_up.shape[1] // 2), np.float32)
        self._kernels.gate(gate_up, out)
        return out

    def _logits(self, x: Array) -> Array:
        logits = self._head(self._normalised(x, self._norm))
        logits[:, self._config.used_vocab :] = -np.inf
        return logits
