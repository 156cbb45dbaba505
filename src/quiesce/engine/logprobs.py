"""Log probabilities of what was drawn and of what might have been."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quiesce.protocol.dispatch import Sampling
from quiesce.protocol.logprobs import LEAST_LOGPROB, TokenLogprobs

Logits = npt.NDArray[np.float32]


def tell(
    logits: Logits, tokens: npt.NDArray[np.int32], sampling: Sequence[Sampling]
) -> list[TokenLogprobs | None] | None:
    """For each row (rows, vocab) what its request asked to be told; None when no row wants anything.

    `logits` are the model's own: what `Shaping` and temperature do to a draw is not in them.
    """
    if all(how.logprobs is None for how in sampling):
        return None
    return [
        None if how.logprobs is None else _of(row, int(token), how.logprobs)
        for row, token, how in zip(logits, tokens, sampling, strict=True)
    ]


def _of(row: Logits, token: int, top: int) -> TokenLogprobs:
    highest = float(row.max())
    total = highest + float(np.log(np.exp(row - row.max()).sum(dtype=np.float64)))
    ids = _most_likely(row, top)
    return TokenLogprobs(
        _clipped(float(row[token]) - total), tuple(ids), tuple(_clipped(float(row[i]) - total) for i in ids)
    )


def _most_likely(row: Logits, top: int) -> list[int]:
    if not top:
        return []
    top = min(top, row.size)
    candidates = np.flatnonzero(row >= np.partition(row, row.size - top)[row.size - top])
    ids: list[int] = candidates[np.argsort(-row[candidates], kind="stable")][:top].tolist()
    return ids


def _clipped(logprob: float) -> float:
    return min(0.0, max(LEAST_LOGPROB, logprob))
