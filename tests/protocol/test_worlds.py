"""Worlds that are not in the catalogue: what they show of the explorer, and random ways through larger ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quiesce.lab.explorer.config import RETRY, TWIN, A, B, Config, config
from quiesce.lab.explorer.search import explore, walk
from quiesce.lab.mutants.registry import MUTANTS
from quiesce.lab.mutants.sender_changes import done_at_once
from quiesce.protocol import sender

FEW = 2_000
WALKS = 8


@pytest.mark.parametrize(
    "world", dict.fromkeys(m.world for m in MUTANTS if m.world is not None and m.patches), ids=lambda w: str(w.budget)
)
def test_the_worlds_that_kill_mutants_are_safe_without_them(world: Config) -> None:
    """A world that always finds fault would kill every mutant and prove nothing."""
    found = explore(replace(world, limit=FEW, heal=world.heal and 20))
    assert found.violation in ("", "limit"), found


def test_coverage_turns_a_false_done_into_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 11: a prefill that writes nothing and says DONE makes nobody read foreign pages."""
    monkeypatch.setattr(sender, "computed", done_at_once)
    found = explore(config(abort=1, heal=9))
    assert not found.violation, found


def test_unsafe_release_on_timeout_is_unsafe() -> None:
    """What other systems do by default; the explorer shows why it is not ours."""
    found = explore(config(abort=1, clock=1, unsafe=True))
    assert found.violation.startswith("no_wild_write")
    found = explore(config(pull=True, sources=2, abort=1, clock=1, unsafe=True))
    assert found.violation.startswith("no_wild_write")


EVERYTHING = {
    "abort": 2,
    "ended": 1,
    "loss": 3,
    "copy": 3,
    "fail": 1,
    "quiesced": 1,
    "cut": 1,
    "crash_p": 1,
    "crash_d": 1,
    "clock": 4,
    "resend": 3,
    "beat": 3,
}
SIZES: tuple[dict[str, Any], ...] = (
    {"pages": 2},
    {"pages": 2, "prefills": 2},
    {"pages": 2, "ranks": 2},
    {"pages": 2, "prefills": 2, "ranks": 2, "again": True},
    {"pages": 4, "lease_pages": 2, "chunks": 2, "batch": 1, "window": 1},
)


@pytest.mark.parametrize("fence", [False, True], ids=["no fence", "fence"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_random_walks_through_larger_worlds(size: dict[str, Any], fence: bool) -> None:
    """Several requests, ranks and every fault together; a failure is replayed by `walk` with the seed it names."""
    world = config(requests=(A, B, TWIN, RETRY), fence=fence, **size, **EVERYTHING)
    for seed in range(WALKS):
        found = walk(world, seed, 120)
        assert not found.violation, (seed, found.violation, found.trace[-40:])


PULL_SIZES: tuple[dict[str, Any], ...] = (
    {"pages": 2, "sources": 2},
    {"pages": 2, "prefills": 2, "sources": 1, "again": True},
    {"pages": 2, "ranks": 2, "sources": 2},
    {"pages": 4, "lease_pages": 2, "batch": 1, "window": 1, "sources": 2},
    {"pages": 5, "lease_pages": 2, "cache": True, "sources": 4, "prefills": 2},
)


@pytest.mark.parametrize("knows", [{}, {"revoke": True}, {"deaths": True, "fence": True}], ids=str)
@pytest.mark.parametrize("size", PULL_SIZES, ids=str)
def test_random_walks_through_larger_worlds_of_pull(size: dict[str, Any], knows: dict[str, Any]) -> None:
    """The same where decode reads, with a backend that can revoke, with deaths that are known, and with neither."""
    world = config(pull=True, requests=(A, B, TWIN, RETRY), join=1, rumour=1, close=1, **size, **knows, **EVERYTHING)
    for seed in range(WALKS):
        found = walk(world, seed, 120)
        assert not found.violation, (seed, found.violation, found.trace[-40:])
