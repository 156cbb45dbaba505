"""Clocks by subject and name, on the event loop."""

from __future__ import annotations

import asyncio

from quiesce.worker.timers import Timers, backoff_s


async def test_a_clock_fires_once() -> None:
    timers, fired = Timers(), asyncio.Event()
    timers.start("attempt 1", "hold", 0.0, fired.set)
    await asyncio.wait_for(fired.wait(), 5)


async def test_restarting_a_clock_replaces_it() -> None:
    """Only the later of two equal clocks fires."""
    timers, done = Timers(), asyncio.Event()
    order: list[str] = []
    timers.start(1, "resend", 0.0, lambda: order.append("old"))
    timers.start(1, "resend", 0.0, done.set)
    await asyncio.wait_for(done.wait(), 5)
    assert order == []


async def test_stopping_a_subject_stops_all_its_clocks() -> None:
    timers, order, done = Timers(), [], asyncio.Event()
    for name in ("hold", "resend"):
        timers.start(1, name, 0.0, lambda: order.append("stopped"))
    timers.start(2, "hold", 0.001, done.set)
    timers.stop(1)
    await asyncio.wait_for(done.wait(), 5)
    assert order == []


async def test_stop_all_leaves_nothing_running() -> None:
    timers, order = Timers(), []
    timers.start(1, "hold", 0.0, lambda: order.append(1))
    timers.start(2, "hold", 0.0, lambda: order.append(2))
    timers.stop_all()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == []


def test_back_off_doubles_up_to_its_limit() -> None:
    assert [backoff_s(0.5, round_) for round_ in (0, 1, 2, 3, 9, 99)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
