"""`quiesce check --bounds small`, a test a world, so that the test run's processes share them."""

from __future__ import annotations

import pytest

from quiesce.lab.check.job import explored
from quiesce.lab.check.show import story
from quiesce.lab.explorer.worlds import FULL, SMALL

SLOW = 20


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SMALL)[:SLOW])
def test_every_state_of_a_larger_world_is_safe_and_comes_to_rest(name: str) -> None:
    found = explored(name, SMALL[name])
    assert not found.violation, story(found)


@pytest.mark.parametrize("name", list(SMALL)[SLOW:])
def test_every_state_is_safe_and_comes_to_rest(name: str) -> None:
    found = explored(name, SMALL[name])
    assert not found.violation, story(found)


def test_no_world_of_the_catalogue_is_cut_short() -> None:
    assert min(world.limit for world in FULL.values()) > 10**8
    assert {world.heal for world in FULL.values()} == {1}
