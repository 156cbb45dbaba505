"""Logits that are numbers: a token drawn from others would mean nothing, and be drawn again for ever."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class NotFinite(Exception):
    """The model's output for a row has a NaN or an infinity at its top: nothing can be drawn from it."""


def finite_rows(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Which rows of float32 (rows, vocab) can be drawn from: a maximum is NaN if anything in its row is.

    -inf is no fault: it is how padding of the vocabulary and tokens that must not be said are marked.
    """
    finite: npt.NDArray[np.bool_] = np.isfinite(logits.max(axis=1))
    return finite
