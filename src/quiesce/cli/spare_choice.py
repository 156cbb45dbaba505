"""What a spare should have loaded, and what that costs: pure, from what was asked for and what memory is free."""

from __future__ import annotations

from typing import Literal

import msgspec

from quiesce.units import show_bytes

MOST_OF_FREE_MEMORY = 0.1
"""How much a spare's copy of the weights may take without having been asked for."""

LIBRARIES_BYTES = 180 << 20
"""Private memory of a process that has imported torch and numba, as measured."""


class SpareChoice(msgspec.Struct, frozen=True):
    """`holds` is None where there is no spare; `n_bytes` is about what it takes for itself, `why` says who decided."""

    holds: Literal["model", "libraries"] | None
    n_bytes: int = 0
    why: str = ""

    def line(self) -> str:
        """For people."""
        if self.holds is None:
            return "none: a worker that dies loads everything again"
        what = "libraries and model" if self.holds == "model" else "libraries"
        return f"waits to take the place of a worker that dies; holds {what} ({show_bytes(self.n_bytes)}{self.why})"


def choose_spare(asked: str, weights_bytes: int, free_bytes: int) -> SpareChoice:
    """`asked` as in `--spare`. The product packs its weights: a process's copy is its own, whatever file is mapped."""
    if asked == "off":
        return SpareChoice(None)
    affordable = weights_bytes <= MOST_OF_FREE_MEMORY * free_bytes
    if asked == "model" or (asked == "auto" and affordable):
        return SpareChoice("model", LIBRARIES_BYTES + weights_bytes)
    why = "" if asked == "libraries" else f"; the model would take {show_bytes(weights_bytes)} more"
    return SpareChoice("libraries", LIBRARIES_BYTES, why)
