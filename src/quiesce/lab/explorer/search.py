"""Breadth-first search over every state of a world, and random walks through larger ones."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from quiesce.lab.explorer.canonical import images, normal, renamings
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.doing import Remembering
from quiesce.lab.explorer.healing import Healer, heal
from quiesce.lab.explorer.move import Move
from quiesce.lab.explorer.moves import USUAL, Step, successors
from quiesce.lab.explorer.rounds import without_rounds
from quiesce.lab.explorer.world import World


@dataclass
class Result:
    """`violation` is "" or what is wrong, `trace` the moves that lead there, as few as possible.

    `depth` is how many moves the farthest state is away from the first.
    """

    violation: str = ""
    trace: list[Move] = field(default_factory=list)
    states: int = 0
    healed: int = 0
    transitions: int = 0
    depth: int = 0


def explore(config: Config, *, symmetry: bool = True) -> Result:
    """Every state of the world, until something is wrong or `config.limit` is passed.

    Without `symmetry`, states that differ in names alone are explored each by itself.
    """
    with without_rounds():
        return Search(config, symmetry=symmetry).run()


class Search:
    """Breadth-first: the first way to a state is a shortest one."""

    def __init__(self, config: Config, *, symmetry: bool = True) -> None:
        self.config = config
        self.result = Result()
        self._symmetry = symmetry
        self._renamings = renamings(config) if symmetry else ()
        self._seen: dict[Any, tuple[Any, Move] | None] = {}
        self._queue: deque[tuple[World, Any, int]] = deque()
        self._healer = Healer(self._renamings)

    def run(self) -> Result:
        self._meet(World(self.config, Remembering(self.config)), None, None, 0)
        while self._queue and not self.result.violation:
            self._visit(*self._queue.popleft())
        self.result.states = len(self._seen)
        return self.result

    def _visit(self, world: World, key: Any, depth: int) -> None:
        self.result.depth = depth
        every = self.config.heal
        if every and self.result.healed * every < self._visited():
            self.result.healed += 1
            if wrong := self._healer.heal(world):
                self._found(wrong, key)
                return
        for move, after in successors(world):
            self.result.transitions += 1
            if not self._meet(after, key, move, depth + 1):
                return
        if len(self._seen) > self.config.limit:
            self.result.violation = "limit"

    def _visited(self) -> int:
        return len(self._seen) - len(self._queue)

    def _meet(self, world: World, parent: Any, move: Move | None, depth: int) -> bool:
        """A state, perhaps for the first time. False when something is wrong with it."""
        key = normal(world) if self._symmetry else world.key()
        if not world.error and (key in self._seen or self._is_image(world)):
            return True
        self._seen[key] = None if move is None else (parent, move)
        if wrong := world.check():
            self._found(wrong, key)
            return False
        self._queue.append((world, key, depth))
        return True

    def _is_image(self, world: World) -> bool:
        return any(each in self._seen for each in images(world, self._renamings))

    def _found(self, violation: str, key: Any) -> None:
        trace = []
        while (step := self._seen[key]) is not None:
            key, move = step
            trace.append(move)
        self.result.violation, self.result.trace = violation, trace[::-1]


def walk(config: Config, seed: int, steps: int) -> Result:
    """One random way through a world that is too large to explore, healed at its end."""
    with without_rounds():
        return _walk(config, seed, steps)


def _walk(config: Config, seed: int, steps: int) -> Result:
    choose = random.Random(seed)
    world, trace = World(config), list[Move]()
    for _ in range(steps):
        ways = list(successors(world))
        if not ways:
            break
        move, world = ways[draw(choose, ways)]
        trace.append(move)
        if wrong := world.check():
            return Result(wrong, trace, len(trace))
    return Result(heal(world) or "", trace, len(trace), 1)


def draw(choose: random.Random, ways: list[Step]) -> int:
    """Faults are many and would use up their budgets at once: mostly something else."""
    usual = [index for index, (move, _) in enumerate(ways) if move.kind in USUAL]
    return choose.choice(usual) if usual and choose.random() < 0.8 else choose.randrange(len(ways))
