"""One run: a plan (parameters, requests, faults) carried out, healed, and judged."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from quiesce.errors import InvariantBroken, OutOfPages
from quiesce.lab.swarm import faults, workload
from quiesce.lab.swarm.checkers import Violation
from quiesce.lab.swarm.cluster import LOOK_EVERY, Cluster
from quiesce.lab.swarm.faults import Fault
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.parameters import ANY, Parameters, Way, draw
from quiesce.lab.swarm.without import NOTHING, Without
from quiesce.lab.swarm.workload import Ask

HEAL_S = 600.0
SLICE_S = 5.0

EXCLUDED = (
    "the executors of the worker processes (their decisions are repeated here, their code is not run)",
    "staged landing's thread (its pages' code is run), and a decode worker whose name another takes while it lives",
    "threads, asyncio, sockets, frames' bytes, processes and signals",
    "memory ordering, torn pages and the metadata slot (a page lands whole, with its tag)",
    "transport libraries, devices, kernels and the engine's arithmetic (a page holds a label, not a context)",
    "HTTP, tokenizers, templates and the router's own event loop",
    "loss of the router itself, shutdown, drain, flush, and changes of settings while it runs",
)
"""What no run of the simulator can show."""


class Plan(msgspec.Struct, frozen=True):
    """All that decides a run. `told` lists what befalls messages and writes; None: their rates decide."""

    parameters: Parameters
    seconds: float
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]
    told: frozenset[str] | None = None


class Outcome(msgspec.Struct):
    """`violation` is "" or the property's name, `detail` what is wrong; `story` its last events in words."""

    seed: int
    violation: str
    detail: str
    about: tuple[int, ...]
    at_s: float
    events: int
    digest: str
    cpu_s: float
    simulated_s: float
    marks: dict[str, int]
    looked: dict[str, int]
    ends: dict[str, int]
    struck: tuple[str, ...] = ()
    story: tuple[str, ...] = ()


def plan_of(seed: int, seconds: float, trace: Path | None = None, way: Way = ANY) -> Plan:
    """The plan that a seed decides, but for what `way` does."""
    p = way.taken_by(draw(seed))
    asks = workload.synthesize(p, seconds) if trace is None else workload.from_trace(trace, p, seconds)
    return Plan(p, seconds, asks, faults.schedule(p, seconds))


def run(
    plan: Plan,
    *,
    without: Without = NOTHING,
    tells: bool = False,
    now: Callable[[float], None] = lambda simulated_s: None,
) -> Outcome:
    """Carry a plan out. `now` hears how far it is, now and then."""
    gc.set_threshold(200_000, 20, 100)  # millions of small objects, next to no cycles
    began_s = time.process_time()
    ground = Ground(plan.parameters, plan.told, without.checkers, tells=tells)
    wrong: Violation | None = None
    try:
        _play(ground, plan, now, without)
    except Violation as error:
        wrong = error
    except InvariantBroken as error:
        wrong = _named(error)
    except (
        KeyError,
        IndexError,
        ValueError,
        OutOfPages,
    ) as error:  # an effect names what an earlier one took away: an executor would fail
        wrong = Violation("effects", f"an effect is about nothing: {type(error).__name__} {error}")
    return _outcome(ground, plan, wrong, time.process_time() - began_s)


def _named(error: InvariantBroken) -> Violation:
    words = error.message.removeprefix("invariant ").split(" ", 1)
    return Violation(words[0], error.message)


def _play(ground: Ground, plan: Plan, now: Callable[[float], None], without: Without) -> None:
    cluster = Cluster(ground, without)
    loop = ground.loop
    feeder = Feeder(cluster, plan)
    loop.after(0.0, None, feeder.next_ask)
    loop.after(0.0, None, feeder.next_fault)
    while loop.now_s < plan.seconds:
        _advance(cluster, min(plan.seconds, loop.now_s + SLICE_S))
        now(loop.now_s)
    cluster.heal()
    most_s = plan.seconds + HEAL_S
    while loop.now_s < most_s and not cluster.is_quiet():
        _advance(cluster, loop.now_s + SLICE_S)
        now(loop.now_s)
    _advance(cluster, loop.now_s + SLICE_S)
    ground.checks.ends_once.all_ended(sorted(cluster.router.begun))
    ground.checks.no_leak.quiet(cluster.wrong_when_quiet())


def _advance(cluster: Cluster, until_s: float) -> None:
    """Go on, and let production's own invariants be evaluated now and then."""
    loop = cluster.ground.loop
    before = loop.events // LOOK_EVERY
    loop.run(until_s)
    if loop.events // LOOK_EVERY != before:
        for wrong in cluster.wrong_now():
            name, _, detail = wrong.partition(": ")
            raise Violation(name, detail)


class Feeder:
    """Lets requests come and faults strike at their times, one after the other: the heap stays small."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster = cluster
        self._asks = iter(plan.asks)
        self._faults = iter(plan.faults)

    def next_ask(self, ask: Ask | None = None) -> None:
        if ask is not None:
            self._cluster.router.ask(ask)
        following = next(self._asks, None)
        if following is not None:
            self._later(following.at_s, self.next_ask, following)

    def next_fault(self, fault: Fault | None = None) -> None:
        if fault is not None:
            self._cluster.strike(fault)
        following = next(self._faults, None)
        if following is not None:
            self._later(following.at_s, self.next_fault, following)

    def _later(self, at_s: float, call: Callable[..., None], what: object) -> None:
        loop = self._cluster.ground.loop
        loop.after(max(0.0, at_s - loop.now_s), None, call, what)


def _outcome(ground: Ground, plan: Plan, wrong: Violation | None, cpu_s: float) -> Outcome:
    return Outcome(
        seed=plan.parameters.seed,
        violation="" if wrong is None else wrong.name,
        detail="" if wrong is None else wrong.detail,
        about=() if wrong is None else wrong.about,
        at_s=ground.loop.now_s,
        events=ground.loop.events,
        digest=f"{ground.loop.digest:016x}",
        cpu_s=cpu_s,
        simulated_s=ground.loop.now_s,
        marks=dict(ground.marks.hits),
        looked=ground.checks.looked(),
        ends=dict(Counter(ground.checks.ends_once.ends.values())),
        struck=tuple(ground.fates.struck),
        story=tuple(ground.story or ()),
    )
