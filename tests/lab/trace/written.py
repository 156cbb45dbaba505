"""Lines as workers would write them, of a path through a world of the explorer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quiesce.lab.explorer import decode_side, prefill_side
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.moves import Step, successors
from quiesce.lab.explorer.search import draw
from quiesce.lab.explorer.world import World
from quiesce.lab.trace.line import Line, line_of
from quiesce.protocol import lender, puller, receiver, sender, trace

Taken = list[tuple[str, Any, Any]]
"""Steps of machines: (whose, fact, effects)."""


class Recorder:
    """Which steps of machines led to a world, while it is switched on."""

    def __init__(self) -> None:
        self._steps: Taken = []
        self._of: dict[int, tuple[Any, Taken]] = {}

    def steps_to(self, world: World) -> Taken:
        return self._of.get(id(world), (world, []))[1]

    def machine(self, whose: Callable[[Any], str], honest: Any) -> Any:
        def step(state: Any, fact: Any) -> Any:
            after, effects = honest(state, fact)
            self._steps.append((whose(state), fact, effects))
            return after, effects

        return step

    def feed(self, honest: Any) -> Any:
        """What a side makes of a fact; a machine may take several steps of it."""

        def fed(*given: Any) -> Any:
            begin, result = len(self._steps), honest(*given)
            self._of[id(result)] = (result, self._steps[begin:])
            return result

        return fed

    def world(self, honest: Any) -> Any:
        def came_of(world: World, *given: Any) -> World:
            after: World = honest(world, *given)
            self._of[id(after)] = (after, self._of.get(id(given[-1]), (None, []))[1])
            return after

        return came_of


@contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        for machine in (receiver, puller):
            whose = lambda state: trace.machine("decode", state.incarnation)  # noqa: E731
            patch.setattr(machine, "step", recorder.machine(whose, machine.step))
        for machine in (sender, lender):
            whose = lambda state: trace.machine("prefill", state.me.incarnation)  # noqa: E731
            patch.setattr(machine, "step", recorder.machine(whose, machine.step))
        for module, name in ((decode_side, "feed"), (prefill_side, "feed")):
            patch.setattr(module, name, recorder.feed(getattr(module, name)))
        for name in ("decided", "worked"):
            patch.setattr(World, name, recorder.world(getattr(World, name)))
        yield recorder


Choose = Callable[[list[Step]], int | None]


def way(config: Config, choose: Choose, most_moves: int) -> Taken:
    """The steps that machines take on one path; `choose` says which successor is next, or None."""
    path: Taken = []
    with recording() as recorder:
        world = World(config)
        for _ in range(most_moves):
            ways = list(successors(world))
            chosen = choose(ways)
            if chosen is None:
                break
            world = ways[chosen][1]
            path += recorder.steps_to(world)
    return path


def along(labels: list[Any]) -> Choose:
    """The path with these labels."""
    left = iter(labels)

    def choose(ways: list[Step]) -> int | None:
        label = next(left, None)
        return None if label is None else next(at for at, each in enumerate(ways) if each[0] == label)

    return choose


def at_random(seed: int) -> Choose:
    dice = random.Random(seed)

    def choose(ways: list[Step]) -> int | None:
        order = sorted(range(len(ways)), key=lambda at: repr(ways[at][0]))
        return order[draw(dice, [ways[at] for at in order])] if ways else None

    return choose


def texts(path: Taken, public: Container[str] | None = None) -> dict[str, list[str]]:
    """A file for each life, as its ring would have it."""
    serials: Counter[str] = Counter()
    files: dict[str, list[str]] = {}
    for at, (whose, fact, effects) in enumerate(path):
        serials[whose] += 1
        files.setdefault(whose, []).append(trace.record(float(at), serials[whose], whose, fact, effects, public))
    return files


def read(files: dict[str, list[str]]) -> list[Line]:
    lines = [line_of(name, at, text) for name, each in files.items() for at, text in enumerate(each, 1)]
    return [line for line in lines if line is not None]
