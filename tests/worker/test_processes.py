"""Real worker processes that die, freeze, wear out and are told to stop: pages come back by proofs only."""

from __future__ import annotations

import asyncio
import signal

import pytest

from quiesce.lab.fault_socket import FaultControl
from quiesce.lab.faults import Held, Hold, Landed, LetGo
from quiesce.protocol.dispatch import WorkerSnapshot

from .asking import BOTH, Ask
from .rig import alone, prompt_ids
from .workers import Workers

pytestmark = pytest.mark.slow


async def held_write(workers: Workers) -> tuple[Ask, FaultControl]:
    """A request whose only write (of 4 pages) waits before its bytes."""
    faults = await workers.faults()
    await faults.order(Hold())
    ask = workers.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await faults.wait_for(Held)
    return ask, faults


async def released(workers: Workers, proof: str) -> float:
    return await workers.desk.metric("decode-0", "quiesce_releases_total", f'proof="{proof}"')


def in_quarantine(view: WorkerSnapshot) -> bool:
    return view.pages["quarantined"] == 4 and [room.state for room in view.rooms] == ["quarantined"]


# ---------------------------------------------------------------- deaths


async def test_prefill_killed_in_a_transfer(workers: Workers) -> None:
    """The writer's death is the proof; its next life is another one, and serves."""
    await workers.pair()
    first = workers.desk.welcomes["prefill-0"].incarnation
    ask, _ = await held_write(workers)
    await workers.kill("prefill-0")
    assert await ask.end("decode-0") in {"prefill_lost", "stream_lost"}
    await workers.empty("decode-0")
    assert (await released(workers, "fenced"), await released(workers, "drained")) == (1, 0)
    await workers.prefill()
    assert workers.desk.welcomes["prefill-0"].incarnation != first
    await workers.desk.paired("decode-0", "prefill-0")
    await workers.serves()


async def test_decode_killed_in_a_transfer(workers: Workers) -> None:
    """A write to a dead life still reads its source: the pages come back when it has settled, not before."""
    await workers.pair()
    ask, faults = await held_write(workers)
    await workers.kill("decode-0")
    assert await ask.end("prefill-0") in {"stream_lost", "decode_lost"}
    assert (await workers.desk.snapshot("prefill-0")).pages["held"] == 4
    await faults.order(LetGo())
    await workers.empty("prefill-0")
    await workers.decode()
    await workers.desk.paired("decode-0", "prefill-0")
    await workers.serves()


async def test_decode_killed_while_it_generates_and_while_others_wait(workers: Workers) -> None:
    await workers.pair({"pool_tokens": 64, "context_length": 64})
    generating = workers.desk.ask(prompt_ids(14), *BOTH, max_tokens=50)
    await generating.said(1)
    assert await generating.end("prefill-0") == "handed_off"
    ask, faults = await held_write(workers)
    waiting = workers.desk.ask(prompt_ids(60, 2), *BOTH, max_tokens=6)
    for worker in reversed(BOTH):
        await workers.desk.shows(worker, lambda view: len(view.rooms) >= 2)
    await workers.kill("decode-0")
    for each in (ask, waiting):
        assert await each.end("prefill-0") in {"stream_lost", "decode_lost"}
    await faults.order(LetGo())
    await workers.empty("prefill-0")


# ---------------------------------------------------------------- a frozen writer


async def test_a_frozen_writer_is_quarantined_until_it_goes_on(workers: Workers) -> None:
    """No deadline frees a page: quarantine is visible, and ends with the writer's own ack."""
    await workers.pair(decode={"hold_deadline_s": 0.1, "quarantine_budget": 1.0})
    ask, faults = await held_write(workers)
    workers.signal("prefill-0", signal.SIGSTOP)
    workers.desk.cancel(ask, "decode-0")
    view = await workers.desk.shows("decode-0", in_quarantine)
    assert view.rooms[0].awaiting
    assert await workers.desk.metric("decode-0", "quiesce_quarantined_attempts_total") == 1
    assert await workers.desk.metric("decode-0", "quiesce_pages", 'state="quarantined"') == 4
    workers.signal("prefill-0", signal.SIGCONT)
    await faults.order(LetGo())
    await workers.empty()
    assert (await released(workers, "drained"), await released(workers, "fenced")) == (1, 0)
    await workers.serves()


async def test_a_frozen_writer_is_killed_when_policy_says_so(workers: Workers) -> None:
    await workers.pair(decode={"hold_deadline_s": 0.1, "fence_policy": "fence"})
    ask, _ = await held_write(workers)
    workers.signal("prefill-0", signal.SIGSTOP)
    workers.desk.cancel(ask, "decode-0")
    assert await workers.ended("prefill-0") == -signal.SIGKILL
    await workers.empty("decode-0")
    assert (await released(workers, "drained"), await released(workers, "fenced")) == (0, 1)
    assert await workers.desk.metric("decode-0", "quiesce_fences_total") == 1


async def test_a_write_past_its_deadline_is_released_by_a_fence_only(workers: Workers) -> None:
    """Its fate is unknown, so no ack ever comes, not even after the bytes have landed."""
    await workers.pair({"call_deadline_s": 0.1}, {"hold_deadline_s": 0.1, "quarantine_budget": 1.0})
    ask, faults = await held_write(workers)
    assert [await ask.end(worker) for worker in BOTH] == ["transfer_unknown"] * 2
    await workers.desk.shows("decode-0", in_quarantine)
    await faults.order(LetGo())
    await faults.wait_for(Landed)
    after = workers.desk.ask(prompt_ids(30), *BOTH, max_tokens=6)
    assert await after.end("decode-0") == "length"
    assert in_quarantine(await workers.desk.snapshot("decode-0"))
    await workers.kill("prefill-0")
    await workers.empty("decode-0")
    assert await released(workers, "fenced") == 1


async def test_too_much_quarantine_begins_a_new_life(workers: Workers) -> None:
    """Over its budget a worker drains, running requests included, and ends; its next life has fresh memory."""
    await workers.pair(decode={"hold_deadline_s": 0.01, "quarantine_budget": 0.01})
    running = workers.desk.ask(prompt_ids(8), *BOTH, max_tokens=200)
    await running.said(1)
    stuck, faults = await held_write(workers)
    workers.desk.cancel(stuck, *BOTH)
    assert await workers.ended("decode-0") == 1
    assert await running.end("decode-0") == "length"
    assert "quarantine-budget" in workers.log("decode-0")
    await faults.order(LetGo())
    await workers.empty("prefill-0")
    await workers.decode()
    await workers.desk.paired("decode-0", "prefill-0")
    await workers.serves()


# ---------------------------------------------------------------- told to stop


async def test_sigterm_lets_running_requests_finish(workers: Workers) -> None:
    await workers.pair()
    asks = [workers.desk.ask(prompt_ids(10 + i, i), *BOTH, max_tokens=100) for i in range(6)]
    await asks[0].said(1)
    for ask in asks:
        await ask.accepted("decode-0")
        await ask.accepted("prefill-0")
    for worker in BOTH:
        workers.signal(worker, signal.SIGTERM)
    assert [await workers.ended(worker) for worker in BOTH] == [0, 0]
    for ask in asks:
        assert ask.tokens == alone(ask.ids, 100)
    assert "msg=drained" in workers.log("decode-0")


async def test_a_draining_worker_refuses_what_is_new(workers: Workers) -> None:
    await workers.pair()
    running = workers.desk.ask(prompt_ids(10), *BOTH, max_tokens=200)
    await running.said(1)
    workers.signal("decode-0", signal.SIGTERM)
    await workers.desk.until(lambda: not workers.desk.ready["decode-0"])
    late = workers.desk.ask(prompt_ids(10), *BOTH, max_tokens=5)
    assert await late.end("decode-0") == "worker_draining"
    assert await running.end("decode-0") == "length"
    assert await workers.ended("decode-0") == 0


async def test_a_second_sigterm_exits_at_once(workers: Workers) -> None:
    """Also while a write hangs, for which a drain would wait all its grace."""
    await workers.pair({"grace_s": 600})
    await held_write(workers)
    workers.signal("prefill-0", signal.SIGTERM)
    await workers.desk.until(lambda: not workers.desk.ready["prefill-0"])
    workers.signal("prefill-0", signal.SIGTERM)
    assert await workers.ended("prefill-0") == 1
    await workers.empty("decode-0")


async def test_a_thread_that_hangs_does_not_keep_the_process(workers: Workers) -> None:
    """After the grace the process ends, whatever a copy is doing; that its memory goes with it is the fence."""
    await workers.pair({"grace_s": 0.1})
    ask, _ = await held_write(workers)
    workers.signal("prefill-0", signal.SIGTERM)
    assert await workers.ended("prefill-0") == 0
    assert await ask.end("decode-0")
    await workers.empty("decode-0")
    assert await released(workers, "fenced") == 1


async def test_an_error_in_a_step_ends_the_process_loudly(workers: Workers) -> None:
    """Exit code 70, a traceback in the log: a supervisor starts the next life."""
    await workers.start("aggregated", ("tests.worker.broken_worker",))
    ask = workers.desk.ask(prompt_ids(10), "aggregated-0", max_tokens=5)
    assert await workers.ended("aggregated-0") == 70
    await workers.desk.gone("aggregated-0")
    assert len(ask.tokens) == 1
    assert "no such kernel" in workers.log("aggregated-0")
    assert "level=error" in workers.log("aggregated-0")


async def test_workers_that_start_in_any_order_say_so_once(workers: Workers) -> None:
    """A decode worker that waits for its prefill worker names the trouble once, not at each try."""
    await workers.decode()
    await asyncio.sleep(0.5)  # some tries: nothing announces them
    await workers.prefill()
    await workers.desk.paired("decode-0", "prefill-0")
    log = workers.log("decode-0")
    assert log.count("cannot be used") == 1
    assert log.count("a prefill worker joined") == 1
