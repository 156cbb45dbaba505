"""A world without new faults: everything is delivered, every clock fires, until nothing changes. What is wrong then?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quiesce.ids import Peer
from quiesce.lab.explorer import pull_judge
from quiesce.lab.explorer.canonical import Renaming, images, normal
from quiesce.lab.explorer.moves import QUIET, clocks, fire, successors
from quiesce.lab.explorer.world import World
from quiesce.protocol import invariants

HEAL_STEPS = 3_000
"""More than any world needs; one that goes on for longer goes on for ever."""


def heal(world: World) -> str | None:
    """No new fault: everything happens that can, clocks included, until nothing changes. What is wrong then?"""
    return Healer(()).heal(world)


class Healer:
    """Heals many states of one world. It knows those from which the way to a good end is known already.

    So what is shown of a state is: there is a way on which no fault strikes, everything is delivered and every clock
    fires, and at its end nothing is held without a named reason. Faults that might still strike do not matter to that.
    """

    def __init__(self, renamings: Iterable[Renaming]) -> None:
        self._renamings = tuple(renamings)
        self._good: set[Any] = set()

    def heal(self, world: World) -> str | None:
        """What is wrong at the end, or None."""
        passed = []
        for _ in range(HEAL_STEPS):
            world = world.but(budget=())
            key = normal(world)
            if self._is_good(world, key):
                break
            passed.append(key)
            after = _next(world) or _after_clocks(world)
            if after.error:
                return f"{after.error} (healed)"
            if after.key() == world.key():
                if wrong := _at_the_end(world):
                    return f"{wrong} (healed)"
                break
            world = after
        else:
            return "no_leak: it never comes to rest (healed)"
        self._good.update(passed)
        return None

    def _is_good(self, world: World, key: Any) -> bool:
        return key in self._good or any(each in self._good for each in images(world, self._renamings))


def _next(world: World) -> World | None:
    """Whatever can happen, in the world's own order."""
    return next((after for move, after in successors(world, faults=False) if move.kind not in QUIET), None)


def _after_clocks(world: World) -> World:
    """Nothing else can happen: every clock fires once, and what they caused happens."""
    for clock in clocks(world):
        if not world.error and clock in clocks(world):
            world = _settled(fire(world, clock))
    return world


def _settled(world: World) -> World:
    for _ in range(HEAL_STEPS):
        after = None if world.error else _next(world)
        if after is None:
            return world
        world = after
    return world


def _at_the_end(world: World) -> str | None:
    if world.config.pull:
        wrong = pull_judge.leak(world.config, world.decode, world.prefills)
    else:
        wrong = next(iter(invariants.no_leak(world.picture(), _unprovable(world))), "")
    return world.check() or wrong or None


def _unprovable(world: World) -> frozenset[Peer]:
    """Without a fence nobody can prove anything about a life that is over."""
    if world.config.fence:
        return frozenset()
    granted = {peer for attempt in world.receiver.attempts.values() for peer in attempt.grants}
    return frozenset(granted - {state.me for state in world.senders})
