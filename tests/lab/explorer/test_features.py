"""Every pair of features meets in some world of small bounds, and the page says in which."""

from __future__ import annotations

from pathlib import Path

from quiesce.lab.check.reference import page
from quiesce.lab.explorer.config import A, B, config
from quiesce.lab.explorer.features import FEATURES, features_of, missing, pairs_of
from quiesce.lab.explorer.worlds import FULL, SMALL, any_of

PAGE = Path(__file__).parents[3] / "docs" / "worlds.md"


def test_every_pair_of_features_meets() -> None:
    assert missing(SMALL) == []


def test_a_pair_that_meets_nowhere_is_named() -> None:
    without = {name: world for name, world in SMALL.items() if not world.staged}
    assert ("staged landing", "torn write") in missing(without)


def test_two_faults_meet_only_where_two_may_strike() -> None:
    pair = frozenset({"message lost", "stream cut"})
    assert pair not in pairs_of(any_of(1, requests=(A,)))
    assert pair in pairs_of(any_of(2, requests=(A,)))


def test_rooms_are_used_again_or_live_at_once() -> None:
    assert "a room used again" in features_of(config(requests=(A, B)))
    assert "equal rooms, live at once" in features_of(config(requests=(A, B), pages=2))


def test_every_feature_is_absent_somewhere() -> None:
    """A predicate that is always true would make every pair meet."""
    for name, has in FEATURES.items():
        assert len({has(world) for world in FULL.values()}) == 2, name


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
