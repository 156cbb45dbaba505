"""Drawing tokens. A draw depends on logits, what was said, seed and step: two processes draw as one would."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quiesce.engine.shaping import Shaping
from quiesce.protocol.dispatch import Sampling

Logits = npt.NDArray[np.float32]

_BLOCK = 1024
"""Weights are summed in blocks first: a running sum over a whole vocabulary is slow."""


def sample(
    logits: Logits,
    sampling: Sequence[Sampling],
    seeds: Sequence[int],
    steps: Sequence[int],
    shapings: Sequence[Shaping | None] = (),
) -> npt.NDArray[np.int32]:
    """One token id (int32) per row of `logits` (rows, vocab) float32. Step 0 draws the first generated token.

    A row's shaping, if it has one, comes before all else. Temperature 0 takes the highest logit, the lowest id of equal
    ones. Otherwise min_p, top_k and top_p narrow, in this order, the softmax at that temperature, in order of
    probability, equal ones by id. `logits` are not changed.
    """
    tokens: npt.NDArray[np.int32] = logits.argmax(axis=1).astype(np.int32)
    shaped = {row: shaping.apply(logits[row]) for row, shaping in enumerate(shapings) if shaping is not None}
    for row, how in enumerate(sampling):
        if how.temperature > 0:
            tokens[row] = _draw(shaped.get(row, logits[row]), how, uniform(seeds[row], steps[row]))
        elif row in shaped:
            tokens[row] = shaped[row].argmax()
    return tokens


def uniform(seed: int, step: int) -> float:
    """A number in [0, 1) that depends on (seed, step) alone: a counter-based generator, no state."""
    mask = (1 << 64) - 1
    key = np.array([seed & mask, (seed >> 64) & mask], np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key, counter=step)).random())


def _draw(row: Logits, how: Sampling, where: float) -> int:
    # The difference first: a small temperature must not overflow. At most 0, so exp is at most 1.
    with np.errstate(over="ignore"):
        weights = np.exp((row - row.max()) / np.float32(max(how.temperature, 1e-6)))
    if how.min_p > 0.0:
        weights[weights < np.float32(how.min_p)] = 0.0  # the most likely token's weight is 1
    top_k = how.top_k if 0 < how.top_k < weights.size else 0
    if not top_k and how.top_p >= 1.0:
        return _pick(weights, where)
    order = _by_weight(weights, _candidates(weights, top_k, how.top_p))
    kept = weights[order[:top_k] if top_k else order]
    if how.top_p < 1.0:
        mass = np.cumsum(kept, dtype=np.float64)
        total = mass[-1] if top_k else weights.sum(dtype=np.float64)
        kept = kept[: int(np.searchsorted(mass, how.top_p * total)) + 1]
    return int(order[_pick(kept, where)])


def _candidates(weights: Logits, top_k: int, top_p: float) -> npt.NDArray[np.intp]:
    """Ids among which all that can be drawn are, so that the rest of a large vocabulary need not be sorted."""
    if top_k:
        least = np.partition(weights, weights.size - top_k)[weights.size - top_k]
        return np.flatnonzero(weights >= least if least > 0 else weights > 0)
    # All weights below this together have less than the mass that top_p leaves out.
    return np.flatnonzero(weights >= (1.0 - top_p) * 0.999 * weights.sum(dtype=np.float64) / weights.size)


def _by_weight(weights: Logits, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """`ids` (rising) by falling weight, equal ones by id."""
    return ids[np.argsort(-weights[ids], kind="stable")]


def _pick(weights: Logits, where: float) -> int:
    """The index at which the cumulative weights pass `where` of their sum; never one of weight 0."""
    blocks = np.cumsum(np.add.reduceat(weights, np.arange(0, weights.size, _BLOCK), dtype=np.float64))
    target = where * blocks[-1]
    block = int(np.searchsorted(blocks, target, side="right"))
    first = block * _BLOCK
    before = blocks[block - 1] if block else 0.0
    mass = before + np.cumsum(weights[first : first + _BLOCK], dtype=np.float64)
    index = first + int(np.searchsorted(mass, target, side="right"))
    if index < weights.size and weights[index] > 0:
        return index
    return int(np.flatnonzero(weights[: index + 1])[-1])  # rounding carried the target past a sum
