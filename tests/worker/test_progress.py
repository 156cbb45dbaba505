"""A hand-off may take long, but not in silence: prefill says that it is at work; decode gives up on who does not."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import pytest

from quiesce.lab.faults import Held, Hold, LetGo
from quiesce.worker.push_outlet import PushOutlet

from .asking import BOTH, Desk
from .gate import LONG_S, Gate
from .house import House
from .rig import prompt_ids
from .workers import Workers


async def traced(desk: Desk, holds: Callable[[list[str]], bool]) -> None:
    """Wait until what decode's machine did is as awaited."""
    async with asyncio.timeout(LONG_S):
        while not holds([line.partition(" ")[2] for line in await desk.trace("decode-0")]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def heard_of(lines: list[str], attempt: int) -> int:
    """How often PROGRESS of an attempt began its clock anew."""
    ends = f"#{attempt} progress()) -> StartTimer(attempt={attempt}, timer=handoff)"
    return sum(line.endswith(ends) for line in lines)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiesce.worker.prefill_executor.PROGRESS_S", 0.01)


@pytest.mark.usefixtures("often")
async def test_who_is_computed_and_who_waits_for_its_turn(house: House) -> None:
    """Both are heard of, again and again; a hand-off that is complete is not, and leaves no clock behind."""
    prefill = await house.prefill()
    await house.decode()
    gate = Gate.on(prefill.worker.parts.engine, "prefill_chunk")
    asks = [house.desk.ask(prompt_ids(14, i), *BOTH, max_tokens=6) for i in range(2)]
    await traced(house.desk, lambda lines: all(heard_of(lines, attempt) >= 3 for attempt in (1, 2)))
    gate.open()
    for ask in asks:
        await ask.answers(6)
    await house.empty()
    outlet = prefill.worker.outlet
    assert isinstance(outlet, PushOutlet)
    assert not [names for names in outlet.executor._timers._running.values() if "progress" in names]
    late = await house.desk.metric("prefill-0", "quiesce_ignored_messages_total", 'kind="timer_progress"')
    assert late == 0


@pytest.mark.usefixtures("often")
async def test_an_engine_that_hangs_is_not_vouched_for(house: House) -> None:
    """Prefill's loop lives, its engine has been at one chunk for too long: it is silent, and decode gives up."""
    prefill = await house.prefill(handoff_timeout_s=0.1)
    await house.decode(handoff_timeout_s=0.3)
    engine = prefill.worker.parts.engine
    gate = Gate.on(engine, "prefill_chunk")
    asks = [house.desk.ask(prompt_ids(14, i), *BOTH, max_tokens=6) for i in range(2)]
    for ask in asks:
        assert await ask.end("decode-0") == "handoff_timeout"
    gate.open()
    await house.empty()


# ---------------------------------------------------------------- processes


@pytest.mark.slow
async def test_long_work_is_told_from_a_frozen_worker(workers: Workers) -> None:
    """A write that takes three times the hand-off's time goes on; one whose worker is stopped ends by silence."""
    await workers.pair(decode={"handoff_timeout_s": 3.0})
    faults = await workers.faults()
    await faults.order(Hold())
    long = workers.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await faults.wait_for(Held)
    await traced(workers.desk, lambda lines: heard_of(lines, 1) >= 9)
    await faults.order(LetGo())
    await long.answers(6)
    await faults.order(Hold())
    frozen = workers.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=6)
    await faults.wait_for(Held)
    workers.signal("prefill-0", signal.SIGSTOP)
    assert await frozen.end("decode-0") == "handoff_timeout"
    assert (await workers.desk.snapshot("decode-0")).pages["held"] == 4
    workers.signal("prefill-0", signal.SIGCONT)
    await faults.order(LetGo())
    await workers.empty()
