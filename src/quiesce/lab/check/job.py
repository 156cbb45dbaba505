"""Worlds explored by processes of their own: what each found, and what it cost."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass

from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.move import Move
from quiesce.lab.explorer.search import explore
from quiesce.lab.mutants.registry import BY_NAME


@dataclass(frozen=True)
class Found:
    """What came of one world. `violation` is "" when every state is right; `trace` is a shortest way there.

    `depth` is how many moves the farthest state is away from the first; `seconds` are those of one core; `memory_bytes`
    is the most that its process had.
    """

    world: str
    violation: str
    trace: tuple[Move, ...]
    states: int
    transitions: int
    depth: int
    seconds: float
    memory_bytes: int


def explored(name: str, world: Config, mutant: str = "") -> Found:
    """Explore a world in this process, with a rule left out when `mutant` names one."""
    began_s = time.process_time()
    with BY_NAME[mutant].applied() if mutant else nullcontext():
        result = explore(world)
    seconds = time.process_time() - began_s
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    counts = (result.states, result.transitions, result.depth)
    return Found(name, result.violation, tuple(result.trace), *counts, seconds, memory_bytes)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def explored_all(worlds: Mapping[str, Config], processes: int, mutant: str = "") -> Iterator[Found]:
    """What each world found, as soon as it is known. They begin in the order of `worlds`, so the largest go first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(min(processes, len(worlds)), mp_context=context, max_tasks_per_child=1)
    with pool:
        jobs = [pool.submit(explored, name, world, mutant) for name, world in worlds.items()]
        try:
            yield from (job.result() for job in as_completed(jobs))
        finally:
            pool.shutdown(cancel_futures=True)
