"""Protections that a run goes without: only mutants do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from quiesce.errors import UsageError
from quiesce.lab.mutants.registry import BY_NAME


class Without(msgspec.Struct, frozen=True):
    """`proof`: an expired hold frees pages; `coverage`: commits look at no tag; `fresh_memory`: a restarted worker has
    the memory of its earlier life; `refusal`: a revoked window serves on; `checkers` by name: what they warn of, does
    it really lead to harm?
    """

    proof: bool = False
    coverage: bool = False
    fresh_memory: bool = False
    refusal: bool = False
    checkers: frozenset[str] = frozenset()


NOTHING = Without()


@contextlib.contextmanager
def mutant(name: str) -> Iterator[Without]:
    """The process runs this mutant of the registry within the block; "" is none. Raises UsageError for no mutant."""
    if not name:
        yield NOTHING
        return
    found = BY_NAME.get(name)
    if found is None:
        raise UsageError(f"There is no mutant {name!r}.", remedy="`quiesce lab swarm --mutants` lists them.")
    with found.applied():
        world = found.world
        yield NOTHING if world is None else Without(world.unsafe, not world.covered, not world.fresh, not world.refuses)
