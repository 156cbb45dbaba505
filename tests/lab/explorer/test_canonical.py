"""States that differ in names alone: whatever can happen after one can happen after the other."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from quiesce.lab.explorer.canonical import Renaming, normal, renamings
from quiesce.lab.explorer.config import RETRY, TWIN, A, B, Config, config
from quiesce.lab.explorer.moves import clocks, fire, successors
from quiesce.lab.explorer.rounds import without_rounds
from quiesce.lab.explorer.search import explore
from quiesce.lab.explorer.world import World
from quiesce.lab.explorer.worlds import SMALL as CATALOGUE
from quiesce.lab.mutants.registry import MUTANTS

FAULTS = {
    "abort": 2,
    "cancel": 1,
    "ended": 1,
    "loss": 2,
    "copy": 2,
    "fail": 1,
    "quiesced": 1,
    "cut": 1,
    "crash_p": 1,
    "crash_d": 1,
    "close": 1,
    "stray": 1,
    "clock": 3,
    "resend": 2,
    "beat": 2,
}
PULLED = FAULTS | {"join": 1, "rumour": 1}
SYMMETRIC = {
    "pull, two lenders": config(
        pull=True, requests=(A, B), pages=2, prefills=2, sources=1, fence=True, revoke=True, **PULLED
    ),
    "pull, two decode ranks": config(
        pull=True, requests=(A, TWIN), pages=4, lease_pages=2, batch=1, ranks=2, sources=2, deaths=True, **PULLED
    ),
    "two prefill ranks": config(requests=(A, B), pages=2, prefills=2, fence=True, **FAULTS),
    "two decode ranks": config(requests=(A, TWIN), pages=2, ranks=2, fence=True, **FAULTS),
    "two of each, shared prefix": config(
        requests=(A, RETRY), pages=4, lease_pages=2, cache=True, prefills=2, ranks=2, again=True, **FAULTS
    ),
    "chunks, sources": config(requests=(A, B), pages=4, lease_pages=2, chunks=2, batch=1, ranks=2, sources=2, **FAULTS),
    "staged": config(requests=(A, B), pages=2, prefills=2, ranks=2, staged=True, torn=2, **FAULTS),
}
SMALL = ("fan-out, fence", "fan-out, decode crash", "shared prefix, fan-out")


def images_of_successors(world: World, names: Renaming | None) -> set[Any]:
    after = [step[1] for step in successors(world)] + [fire(world, clock) for clock in clocks(world)]
    return {(bool(each.error), normal(each if names is None else names.image(each))) for each in after}


@pytest.mark.parametrize("world", SYMMETRIC.values(), ids=SYMMETRIC.keys())
def test_a_renamed_state_has_renamed_successors(world: Config) -> None:
    choose = random.Random(7)
    with without_rounds():
        for _ in range(2):
            now = World(world)
            for _ in range(30):
                for names in renamings(world):
                    assert images_of_successors(names.image(now), None) == images_of_successors(now, names)
                ways = list(successors(now))
                if not ways:
                    break
                now = choose.choice(ways)[1]


@pytest.mark.parametrize("world", SYMMETRIC.values(), ids=SYMMETRIC.keys())
def test_a_renamed_state_is_as_right_or_wrong(world: Config) -> None:
    choose = random.Random(5)
    with without_rounds():
        now = World(replace(world, unsafe=True))
        for _ in range(60):
            for names in renamings(world):
                wrong, here = names.image(now).check() or "", now.check() or ""
                assert wrong.partition(":")[0] == here.partition(":")[0]
            ways = list(successors(now))
            if not ways:
                break
            now = choose.choice(ways)[1]


def test_renaming_twice_is_no_change() -> None:
    world = SYMMETRIC["two of each, shared prefix"]
    choose = random.Random(1)
    swap = renamings(world)
    assert len(swap) == 3
    with without_rounds():
        now = World(world)
        for _ in range(80):
            assert all(each.image(each.image(now)).key() == now.key() for each in swap)
            ways = list(successors(now))
            if not ways:
                break
            now = choose.choice(ways)[1]


def test_ranks_with_different_requests_are_not_equal() -> None:
    assert renamings(config(requests=(A,), prefills=2, arrivals=((0, A),))) == ()
    assert len(renamings(config(requests=(A,), prefills=2, arrivals=((0, A), (1, A))))) == 1


@pytest.mark.parametrize("name", SMALL)
def test_symmetry_changes_no_verdict(name: str) -> None:
    whole, less = (explore(replace(CATALOGUE[name], heal=0), symmetry=each) for each in (False, True))
    assert whole.violation == less.violation == ""
    assert less.states < whole.states


SEEN = [each for each in MUTANTS if each.world is not None and each.world.prefills + each.world.ranks > 2]


@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: mutant.name)
def test_symmetry_hides_no_mutant(mutant: Any) -> None:
    with mutant.applied():
        whole, less = (explore(mutant.world, symmetry=each) for each in (False, True))
    assert whole.violation.partition(":")[0] == less.violation.partition(":")[0] != ""
    assert len(whole.trace) == len(less.trace)
