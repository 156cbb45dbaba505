"""Protections that a run goes without: only mutants do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from quiesce.errors import UsageError
from quiesce.lab.explorer.config import Config
from quiesce.lab.mutants.mutant import Mutant
from quiesce.lab.mutants.registry import MUTANTS
from quiesce.lab.swarm.landing_mutants import LANDING

KNOWN: dict[str, Mutant] = {each.name: each for each in (*MUTANTS, *LANDING)}
"""What can be run without a rule: the machines, the router, staged landing."""


class Without(msgspec.Struct, frozen=True):
    """`proof`: an expired hold frees pages; `coverage`: commits look at no tag; `fresh_memory`: restarted workers of
    these roles have the memory of their earlier lives; `refusal`: a revoked window serves on; `checkers` by name: what
    they warn of, does it really lead to harm?
    """

    proof: bool = False
    coverage: bool = False
    fresh_memory: frozenset[str] = frozenset()
    refusal: bool = False
    checkers: frozenset[str] = frozenset()


NOTHING = Without()


@contextlib.contextmanager
def mutant(name: str) -> Iterator[Without]:
    """The process runs this mutant of the registry within the block; "" is none. Raises UsageError for no mutant."""
    if not name:
        yield NOTHING
        return
    found = KNOWN.get(name)
    if found is None:
        raise UsageError(f"There is no mutant {name!r}.", remedy="`quiesce lab swarm --mutants` lists them.")
    with found.applied():
        yield NOTHING if found.world is None else _of(found.world)


def _of(world: Config) -> Without:
    """What the mutant's world goes without. Those whose memory survives them are those who die there."""
    may_die = {"decode": "crash_d", "prefill": "crash_p"}
    dying = frozenset(role for role, fault in may_die.items() if fault in dict(world.budget))
    return Without(world.unsafe, not world.covered, frozenset() if world.fresh else dying, not world.refuses)
