"""Intervals for proportions. Sources: Clopper and Pearson 1934, Wilson 1927, Newcombe 1998 (method 10)."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

CONFIDENCE = 0.95
Z = 1.959963984540054
_HALVINGS = 60


class Rate(msgspec.Struct, frozen=True):
    """`hits` of `trials`, with an exact (Clopper-Pearson) interval of 95 %; of no trials nothing is known."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.trials if self.trials else 0.0


class Difference(msgspec.Struct, frozen=True):
    """One proportion less another, with Newcombe's hybrid score interval of 95 %."""

    value: float
    low: float
    high: float


def rate(hits: int, trials: int) -> Rate:
    """The exact interval, by bisection of the binomial tails."""
    if trials == 0:
        return Rate(0, 0, 0.0, 1.0)
    tail = (1 - CONFIDENCE) / 2
    # Of nothing seen, all the doubt is on one side: 3 / trials, the rule of three, almost.
    low = 0.0 if hits == 0 else _root(lambda p: 1 - _at_most(hits - 1, trials, p), tail)
    high = 1.0 if hits == trials else _root(lambda p: 1 - _at_most(hits, trials, p), 1 - (tail if hits else 2 * tail))
    return Rate(hits, trials, low, high)


def _root(rising: Callable[[float], float], wanted: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2


def _at_most(hits: int, trials: int, p: float) -> float:
    """P(X <= hits) for X binomial."""
    if p <= 0.0 or p >= 1.0:
        return 1.0 if p <= 0.0 else float(hits >= trials)
    log_p, log_q, whole = math.log(p), math.log1p(-p), math.lgamma(trials + 1)
    terms = (
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * log_p + (trials - k) * log_q)
        for k in range(hits + 1)
    )
    return min(1.0, math.fsum(terms))


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's score interval of 95 %."""
    if trials == 0:
        return 0.0, 1.0
    p, square = hits / trials, Z * Z
    centre = (p + square / (2 * trials)) / (1 + square / trials)
    spread = Z * math.sqrt(p * (1 - p) / trials + square / (4 * trials * trials)) / (1 + square / trials)
    return max(0.0, centre - spread), min(1.0, centre + spread)


def difference(first: Rate, second: Rate) -> Difference:
    """`first` less `second`."""
    a, b = first.value, second.value
    (a_low, a_high), (b_low, b_high) = wilson(first.hits, first.trials), wilson(second.hits, second.trials)
    low = a - b - math.hypot(a - a_low, b_high - b)
    return Difference(a - b, low, a - b + math.hypot(a_high - a, b - b_low))
