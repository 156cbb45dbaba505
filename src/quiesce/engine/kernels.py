"""Everything between the matrix products, in numba: norms, rotation and the store into pages, the MLP's gate.

Rows are independent: a row's bits depend on that row alone, never on how many rows there are or where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from quiesce.engine.attention import compile_attention
from quiesce.engine.config import ModelConfig
from quiesce.engine.jit import compiling, inlined, kernel
from quiesce.engine.kernel_cache import shape_of
from quiesce.engine.vectors import LANES, gate_vector


class Kernels(NamedTuple):
    """Compiled for one model shape. See each `_compile_*` for arguments."""

    attend: Callable[..., None]
    norm: Callable[..., None]
    angles: Callable[..., None]
    rotate_and_store: Callable[..., None]
    gate: Callable[..., None]
    product: Callable[..., None]


def compile_kernels(config: ModelConfig) -> Kernels:
    """Load from the disk cache or compile (seconds). Two processes at once: one compiles, the other waits."""
    with compiling(shape_of(config)):
        return Kernels(
            attend=compile_attention(config.head_dim, config.group),
            norm=_compile_norm(),
            angles=_compile_angles(),
            rotate_and_store=_compile_rotate_and_store(config.head_dim),
            gate=_compile_gate(),
            product=_compile_product(),
        )


def _compile_norm() -> Callable[..., None]:
    """norm(x, weight, eps, out): RMS norm of each row of x (rows, hidden)."""

    @kernel("void(float32[:,::1], float32[::1], float32, float32[:,::1])", reorder=True)
    def norm(x: Any, weight: Any, eps: Any, out: Any) -> None:
        columns = x.shape[1]
        for r in range(x.shape[0]):
            squares = np.float32(0)
            for c in range(columns):
                squares += x[r, c] * x[r, c]
            factor = np.float32(1) / np.float32(math.sqrt(squares / np.float32(columns) + eps))
            for c in range(columns):
                out[r, c] = x[r, c] * factor * weight[c]

    return norm


def _compile_angles() -> Callable[..., None]:
    """angles(positions, frequencies, factor, cosines, sines): tables (rows, head_dim / 2) for int64 positions."""

    @kernel("void(int64[::1], float32[::1], float32, float32[:,::1], float32[:,::1])")
    def angles(positions: Any, frequencies: Any, factor: Any, cosines: Any, sines: Any) -> None:
        for r in range(positions.shape[0]):
            for i in range(frequencies.shape[0]):
                angle = np.float32(positions[r]) * frequencies[i]
                cosines[r, i] = np.float32(math.cos(np.float64(angle))) * factor
                sines[r, i] = np.float32(math.sin(np.float64(angle))) * factor

    return angles


def _compile_rotate_and_store(head_dim: int) -> Callable[..., None]:
    """rotate_and_store(qkv, heads, q_norm, k_norm, eps, cosines, sines, pool, layer, page_of_row, place_of_row).

    Normalises q and k per head when the norms are not empty, rotates them, leaves q in qkv (rows, heads + 2 kv_heads,
    head_dim flattened) and writes k and v of each row to its place in its page.
    """
    half = head_dim // 2

    @kernel(
        "void(float32[:,::1], int64, float32[::1], float32[::1], float32, float32[:,::1], float32[:,::1], "
        "float32[:,:,:,:,:,::1], int64, int64[::1], int64[::1])",
        reorder=True,
    )
    def rotate_and_store(
        qkv: Any,
        heads: int,
        q_norm: Any,
        k_norm: Any,
        eps: Any,
        cosines: Any,
        sines: Any,
        pool: Any,
        layer: int,
        page_of_row: Any,
        place_of_row: Any,
    ) -> None:
        kv_heads = pool.shape[4]
        for r in range(qkv.shape[0]):
            for h in range(heads + kv_heads):
                _normalise(qkv, r, h * head_dim, head_dim, q_norm if h < heads else k_norm, eps)
                _rotate(qkv, r, h * head_dim, half, cosines, sines)
            page, place = page_of_row[r], place_of_row[r]
            for h in range(kv_heads):
                k_at = (heads + h) * head_dim
                v_at = (heads + kv_heads + h) * head_dim
                for d in range(head_dim):
                    pool[page, layer, 0, place, h, d] = qkv[r, k_at + d]
                    pool[page, layer, 1, place, h, d] = qkv[r, v_at + d]

    return rotate_and_store


@inlined
def _normalise(qkv: Any, r: int, at: int, hd: int, weight: Any, eps: Any) -> None:
    """RMS norm of one head of a row, in place; nothing when `weight` is empty."""
    if weight.shape[0] > 0:
        squares = np.float32(0)
        for d in range(hd):
            squares += qkv[r, at + d] * qkv[r, at + d]
        factor = np.float32(1) / np.float32(math.sqrt(squares / np.float32(hd) + eps))
        for d in range(hd):
            qkv[r, at + d] = qkv[r, at + d] * factor * weight[d]


@inlined
def _rotate(qkv: Any, r: int, at: int, half: int, cosines: Any, sines: Any) -> None:
    """Rotate one head of a row, in place."""
    for d in range(half):
        a = qkv[r, at + d]
        b = qkv[r, at + half + d]
        qkv[r, at + d] = a * cosines[r, d] - b * sines[r, d]
        qkv[r, at + half + d] = b * cosines[r, d] + a * sines[r, d]


def _compile_gate() -> Callable[..., None]:
    """gate(gate_up, out): out (rows, n) = silu(gate_up[:, :n]) * gate_up[:, n:]."""

    @kernel("void(float32[:,::1], float32[:,::1])")
    def gate(gate_up: Any, out: Any) -> None:
        columns = out.shape[1]
        whole = columns - columns % LANES
        for r in range(out.shape[0]):
            gate_at = np.int64(gate_up.ctypes.data) + r * gate_up.strides[0]
            out_at = np.int64(out.ctypes.data) + r * out.strides[0]
            for c in range(0, whole, LANES):
                gate_vector(gate_at + 4 * c, gate_at + 4 * (columns + c), out_at + 4 * c)
            for c in range(whole, columns):
                x = gate_up[r, c]
                out[r, c] = x / (np.float32(1) + np.float32(math.exp(-x))) * gate_up[r, columns + c]

    return gate


def _compile_product() -> Callable[..., None]:
    """product(x, weight, out): out (n,) += weight (n, k) @ x (k,); reads the weights at the speed of memory."""

    @kernel("void(float32[::1], float32[:,::1], float32[::1])", reorder=True)
    def product(x: Any, weight: Any, out: Any) -> None:
        k = x.shape[0]
        whole = weight.shape[0] - weight.shape[0] % 4
        for n in range(0, whole, 4):
            a = np.float32(0)
            b = np.float32(0)
            c = np.float32(0)
            d = np.float32(0)
            for i in range(k):
                a += x[i] * weight[n, i]
                b += x[i] * weight[n + 1, i]
                c += x[i] * weight[n + 2, i]
                d += x[i] * weight[n + 3, i]
            out[n] += a
            out[n + 1] += b
            out[n + 2] += c
            out[n + 3] += d
        for n in range(whole, weight.shape[0]):
            a = np.float32(0)
            for i in range(k):
                a += x[i] * weight[n, i]
            out[n] += a

    return product
