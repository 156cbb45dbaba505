"""How many cores the engine takes is decided by `threads`, whichever thread calls it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from quiesce.engine.engine import Engine
from quiesce.kv.storage import Pool


def test_an_engine_of_one_thread_computes_on_one_core_from_any_thread() -> None:
    """OpenMP's thread count belongs to the calling thread: another thread's first call must not take all cores."""
    engine = Engine.load("smollm2")
    engine.bind(Pool.private(engine.layout(16), 64))
    engine.warm_up()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(share_of_others, engine).result() < 0.2


def share_of_others(engine: Engine) -> float:
    """Share of the process's CPU time in a few steps that was not the calling thread's own."""
    ids, table = np.full(32, 5, np.int32), np.zeros((32, 1), np.int32)
    own_s, all_s = time.thread_time(), time.process_time()
    for _ in range(5):
        engine.decode_step(ids, np.zeros(32, np.int32), table)
    own_s, all_s = time.thread_time() - own_s, time.process_time() - all_s
    return 1 - own_s / all_s
