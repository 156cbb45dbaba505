"""Intervals and exact tests against published or counted values."""

from __future__ import annotations

import itertools
import math

import pytest

from quiesce.audit.exact_tests import Stratum, more_in_treated, shorter
from quiesce.audit.intervals import difference, rate, wilson


def test_exact_intervals() -> None:
    """Clopper-Pearson; 3 of 20 as in any table, nothing of n by the closed form."""
    three = rate(3, 20)
    assert (three.low, three.high) == pytest.approx((0.03207, 0.37893), abs=1e-5)
    assert rate(0, 100).high == pytest.approx(1 - 0.05 ** (1 / 100), abs=1e-9)
    assert (rate(20, 20).low, rate(20, 20).high) == pytest.approx((0.025 ** (1 / 20), 1.0), abs=1e-9)
    assert (rate(0, 0).low, rate(0, 0).high) == (0.0, 1.0)


def test_differences() -> None:
    """Newcombe 1998, table II, row a: 56/70 against 48/80."""
    apart = difference(rate(56, 70), rate(48, 80))
    assert (apart.low, apart.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_one_stratum_is_fishers_test() -> None:
    """The lady tasting tea: 3 of 4 against 1 of 4 is 17/70."""
    assert more_in_treated([Stratum(4, 3, 4, 1)]) == pytest.approx(17 / 70)
    assert more_in_treated([]) == 1.0


def test_strata_are_counted_together() -> None:
    """Against all assignments of hits to arms, stratum by stratum."""
    strata = [Stratum(3, 2, 3, 1), Stratum(2, 1, 3, 1)]
    seen = sum(each.treated_hits for each in strata)

    def counts(each: Stratum) -> list[int]:
        hits = each.treated_hits + each.control_hits
        chosen = itertools.combinations(range(each.treated + each.control), hits)
        return [sum(place < each.treated for place in places) for places in chosen]

    totals = [sum(pair) for pair in itertools.product(*map(counts, strata))]
    assert more_in_treated(strata) == pytest.approx(sum(total >= seen for total in totals) / len(totals))


def test_rank_sums() -> None:
    """All of one below all of the other; and with ties against every choice."""
    assert shorter([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) == pytest.approx(1 / math.comb(6, 3))
    first, second = [1.0, 2.0, 2.0], [2.0, 3.0, 4.0]
    ranks = {1.0: 1.0, 2.0: 3.0, 3.0: 5.0, 4.0: 6.0}
    everything = [ranks[value] for value in first + second]
    as_low = [sum(chosen) <= sum(everything[:3]) for chosen in itertools.combinations(everything, 3)]
    assert shorter(first, second) == pytest.approx(sum(as_low) / len(as_low))
    assert shorter([], [1.0]) == 1.0
