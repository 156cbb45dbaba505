"""Chance, by name: what befalls a message or a write follows from the seed and from which one it is, nothing else.

So leaving out a request or a fault changes nothing for the others, and a failing run can be made smaller. What struck
is listed in words, and a replay is told the list instead of the rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_MASK = (1 << 64) - 1
_UNIT = 1.0 / (1 << 53)

LOSE, COPY, LATE, QUIESCED, UNKNOWN, UNKNOWN_LANDS, SLOW, DELAY, SPREAD, STRAY, EARLY_ACK, FOREIGN, TORN, HELD_UP = (
    range(14)
)
SERVED = 14
KINDS = {
    LOSE: "lose",
    COPY: "copy",
    LATE: "delay",
    STRAY: "keep, and deliver to whoever is there then,",
    EARLY_ACK: "ack unasked with",
    FOREIGN: "say as a stranger",
    HELD_UP: "hold up",
    QUIESCED: "fail for good",
    UNKNOWN: "fail, fate unknown",
    UNKNOWN_LANDS: "fail but land",
    SLOW: "land late",
    TORN: "report as landed, without one page,",
}
"""What may befall a message (the first seven), a write or a read, as replay files say it."""

Key = tuple[int, ...]


def mixed(seed: int, parts: Key) -> int:
    """64 well-mixed bits of a few numbers (the finaliser of SplitMix64 over each)."""
    mask = _MASK
    x = seed & mask
    for part in parts:
        x = (x ^ part) * 0xBF58476D1CE4E5B9 & mask
        x ^= x >> 29
    x = x * 0x94D049BB133111EB & mask
    return x ^ (x >> 31)


class Fates:
    """`rates` by kind; with `told`, what strikes is what stands there, and rates do not count."""

    def __init__(self, seed: int, rates: Mapping[int, float], told: frozenset[str] | None = None) -> None:
        self._seed = seed
        self._rates = {kind: rates.get(kind, 0.0) for kind in KINDS}
        self._told = told
        self.struck: list[str] = []
        self.healed = False

    def unit(self, kind: int, key: Key) -> float:
        """A number in [0, 1) of this kind for this key."""
        return (mixed(self._seed + kind, key) >> 11) * _UNIT

    def between(self, kind: int, key: Key, low: float, high: float) -> float:
        return low + (high - low) * ((mixed(self._seed + kind, key) >> 11) * _UNIT)

    def strikes(self, kind: int, key: Key, named: Callable[..., str], *about: object) -> bool:
        """Whether this befalls it. `named(*about)` says in words what it is."""
        if self.healed:
            return False
        if self._told is not None:
            struck = bool(self._told) and f"{KINDS[kind]} {named(*about)}" in self._told
        else:
            rate = self._rates[kind]
            struck = rate > 0.0 and (mixed(self._seed + kind, key) >> 11) * _UNIT < rate
        if struck:
            self.struck.append(f"{KINDS[kind]} {named(*about)}")
        return struck
