"""Exact tests whose null hypothesis is made true by the design: arms were assigned by our own random draw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec


class Stratum(msgspec.Struct, frozen=True):
    """Two arms of one kind of prompt: how many were asked, how many of them diverged."""

    treated: int
    treated_hits: int
    control: int
    control_hits: int


def more_in_treated(strata: Iterable[Stratum]) -> float:
    """P(at least so many hits in the treated arm), were hits independent of the arm within each stratum.

    With one stratum this is Fisher's exact test, one-sided; with several it is the exact conditional test whose
    approximation is Cochran-Mantel-Haenszel: hypergeometric distributions, convolved. Strata may differ in their rates.
    """
    distribution, seen = [1.0], 0
    for stratum in strata:
        distribution = _convolved(distribution, _hypergeometric(stratum))
        seen += stratum.treated_hits
    return min(1.0, math.fsum(distribution[seen:]))


def _hypergeometric(stratum: Stratum) -> list[float]:
    """Probabilities of 0, 1, ... hits in the treated arm, given all hits of the stratum."""
    hits, everybody = stratum.treated_hits + stratum.control_hits, stratum.treated + stratum.control
    ways = math.comb(everybody, hits)
    most = min(hits, stratum.treated)
    return [math.comb(stratum.treated, k) * math.comb(stratum.control, hits - k) / ways for k in range(most + 1)]


def _convolved(first: Sequence[float], second: Sequence[float]) -> list[float]:
    together = [0.0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            together[i + j] += a * b
    return together


def shorter(first: Sequence[float], second: Sequence[float]) -> float:
    """P(`first` ranks so low or lower), were both drawn alike: Wilcoxon's rank-sum test, exact, ties by mid-ranks."""
    if not first or not second:
        return 1.0
    ranks = _doubled_ranks([*first, *second])
    seen, size = sum(ranks[: len(first)]), len(first)
    # ways[k][s]: how many choices of k values have the (doubled) rank sum s.
    ways: list[Counter[int]] = [Counter({0: 1}), *(Counter[int]() for _ in range(size))]
    for rank in ranks:
        for k in range(size, 0, -1):
            for total, count in ways[k - 1].items():
                ways[k][total + rank] += count
    as_low = sum(count for total, count in ways[size].items() if total <= seen)
    return as_low / math.comb(len(ranks), size)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the mid-rank of each value, so that they are whole numbers."""
    order = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(order)))}
    count = Counter(order)
    return [2 * first[value] + count[value] + 1 for value in values]
