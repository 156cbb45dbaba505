"""Matrix products with fixed weights: the one place that decides which library multiplies.

oneDNN with weights packed once is two to four times faster than MKL on the matrices of a small model (bench/engine.py).
One row alone is a matter of memory speed: numba reads the checkpoint's own (memory-mapped) weights for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

TILE_ROWS = 16
"""Deterministic mode multiplies exactly this many rows at a time, so that no kernel is chosen by how many there are."""

Array = npt.NDArray[np.float32]
Product = Callable[[Array, Array, Array], None]


class Linear:
    """y = x @ W.T + bias for W made of `parts`, each (n_i, k) float32, stacked along n.

    `product` (None: never) computes single rows from `parts` in place; they are kept for it beside the packed copy.
    """

    def __init__(
        self,
        parts: Sequence[torch.Tensor],
        bias: torch.Tensor | None = None,
        *,
        product: Product | None = None,
        deterministic: bool = False,
    ) -> None:
        weight = (parts[0] if len(parts) == 1 else torch.cat(list(parts))).float()
        self.columns = weight.shape[0]
        self._bias = None if bias is None else bias.float().contiguous()
        self._deterministic = deterministic
        self._product = None if deterministic else product
        self._parts = [part.numpy() for part in parts] if self._product else []
        self._packs = _can_pack()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, TILE_ROWS) if self._packs else weight

    def __call__(self, x: Array) -> Array:
        """x (rows, k) to (rows, n), both float32 and contiguous."""
        return self._run(x, None)

    def add_to(self, residual: Array, x: Array) -> Array:
        """residual (rows, n) + x @ W.T, a new array."""
        return self._run(x, residual)

    def _run(self, x: Array, residual: Array | None) -> Array:
        if self._product and x.shape[0] == 1:
            return self._single_row(x, residual)
        if self._deterministic:
            return self._by_tiles(x, residual)
        y: Array = self._multiply(torch.from_numpy(x), None if residual is None else torch.from_numpy(residual)).numpy()
        return y

    def _multiply(self, x: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        if not self._packs:
            y = torch.nn.functional.linear(x, self._weight, self._bias)
            return y if residual is None else y.add_(residual)
        linear = torch.ops.mkldnn._linear_pointwise
        result: torch.Tensor
        if residual is None:
            result = linear(x, self._weight, self._bias, "none", [], "")
        else:
            result = linear.binary(x, residual, self._weight, self._bias, "add")
        return result

    def _single_row(self, x: Array, residual: Array | None) -> Array:
        y = np.zeros((1, self.columns), np.float32) if residual is None else residual.copy()
        if self._bias is not None:
            y += self._bias.numpy()
        at = 0
        for part in self._parts:
            self._product(x[0], part, y[0, at : at + part.shape[0]])  # type: ignore[misc]
            at += part.shape[0]
        return y

    def _by_tiles(self, x: Array, residual: Array | None) -> Array:
        """Rows in tiles of TILE_ROWS from aligned memory, the last one padded with zeros."""
        rows = x.shape[0]
        tiles = -(-rows // TILE_ROWS) * TILE_ROWS
        padded, y = torch.zeros(tiles, x.shape[1]), torch.empty(tiles, self.columns)
        padded[:rows] = torch.from_numpy(x)
        for at in range(0, tiles, TILE_ROWS):
            tile = padded[at : at + TILE_ROWS].clone()
            y[at : at + TILE_ROWS] = self._multiply(tile, None)
        result: Array = y[:rows].numpy()
        if residual is not None:
            result += residual
        return result


def _can_pack() -> bool:
    """Whether this torch has oneDNN, and the operations under which it lends it to compiled models."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
