"""A request's time passes wherever it is: it ends with 504 there, and its pages come back by proof as always."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce.lab.faults import Step
from quiesce.protocol.dispatch import Failed

from .asking import BOTH, Ask
from .gate import LONG_S, Gate
from .house import House, Member
from .rig import alone, prompt_ids

ONE = "aggregated-0"
SOON_S = 0.05
"""Long past when whatever blocks the request lets go."""


def is_deadline(ask: Ask, worker: str) -> bool:
    failures = [frame.failure for name, frame in ask.heard if name == worker and isinstance(frame, Failed)]
    return [(failure.code, failure.status) for failure in failures] == [("deadline_exceeded", 504)]


async def ends_by_deadline(ask: Ask, worker: str) -> None:
    await ask.end(worker)
    assert is_deadline(ask, worker)


def time_is_over(ask: Ask, member: Member[Any]) -> None:
    """The clock that runs for it at this worker fires now: a real one might, on a slow machine, before the stage."""
    worker = member.worker
    assert ask.request in worker._deadlines._running
    worker._deadlines.start(ask.request, "deadline", 0.0, lambda: worker._expire(ask.request))


async def test_while_it_waits_for_its_other_half(house: House) -> None:
    """At prefill for the destination; at decode for the prompt."""
    await house.prefill()
    await house.decode()
    for worker in BOTH:
        ask = house.desk.ask(prompt_ids(14), worker, timeout_s=SOON_S)
        await ends_by_deadline(ask, worker)
        assert await house.desk.metric(worker, "quiesce_deadlines_total") == 1
    await house.empty()


async def test_while_it_waits_for_pages_at_decode(house: House) -> None:
    """It had no lease, so nothing is held; whoever waits behind it is served."""
    await house.prefill()
    await house.decode(pool_tokens=64, context_length=64)
    large = house.desk.ask(prompt_ids(50), *BOTH, max_tokens=14)
    await large.said(1)
    gate = Gate.on(house.members["decode-0"].worker.parts.engine, "decode_step")
    late = house.desk.ask(prompt_ids(40, 1), *BOTH, max_tokens=6, timeout_s=SOON_S)
    await ends_by_deadline(late, "decode-0")
    after = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=6)
    gate.open()
    assert await after.end("decode-0") == "length"
    assert (large.tokens, after.tokens) == (alone(large.ids, 14), alone(after.ids, 6))
    await house.empty()


async def test_while_it_waits_to_be_computed(house: House) -> None:
    """Behind a prompt that the engine is at work on; with pages to spare, and without."""
    prefill = await house.prefill(pool_tokens=64, context_length=64)
    await house.decode()
    engine = prefill.worker.parts.engine
    gate = Gate.on(engine, "prefill_chunk")
    first = house.desk.ask(prompt_ids(50), *BOTH, max_tokens=6)
    await gate.reached()
    for length in (14, 40):
        late = house.desk.ask(prompt_ids(length, 1), *BOTH, max_tokens=6, timeout_s=SOON_S)
        for worker in BOTH:
            assert await late.end(worker) in {"deadline_exceeded", "aborted"}
        assert any(is_deadline(late, worker) for worker in BOTH)
    gate.open()
    await first.answers(6)
    await house.empty()


async def test_while_it_is_computed(house: House) -> None:
    """Its source pages are not free before the engine has left them."""
    prefill = await house.prefill()
    await house.decode()
    engine = prefill.worker.parts.engine
    gate = Gate.on(engine, "prefill_chunk")
    ask = house.desk.ask(prompt_ids(40), *BOTH, max_tokens=6, timeout_s=LONG_S)
    await gate.reached()
    time_is_over(ask, prefill)
    for worker in BOTH:
        assert await ask.end(worker) in {"deadline_exceeded", "aborted"}
    assert (await house.desk.snapshot("prefill-0")).pages["free"] < 64
    gate.open()
    await house.empty()


@pytest.mark.parametrize("step", list(Step))
async def test_while_a_write_is_under_way(house: House, step: Step) -> None:
    """The lease is held until the write has settled: a deadline frees nothing."""
    prefill = await house.prefill()
    decode = await house.decode()
    prefill.writes.hold(step)
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6, timeout_s=LONG_S)
    await prefill.writes.held()
    time_is_over(ask, decode)
    for worker in BOTH:
        assert await ask.end(worker) in {"deadline_exceeded", "aborted"}
    view = await house.desk.snapshot("decode-0")
    assert (view.pages["held"], [room.state for room in view.rooms]) == (4, ["holding"])
    prefill.writes.let_go()
    await house.empty()


async def test_while_it_generates(house: House) -> None:
    """What was said stays said; nothing comes after the failure, not even from the step that was under way."""
    await house.prefill()
    decode = await house.decode()
    gate = Gate.on(decode.worker.parts.engine, "decode_step")
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=60, timeout_s=0.3)
    await ends_by_deadline(ask, "decode-0")
    gate.open()
    await house.empty()
    assert ask.tokens == alone(ask.ids, 60)[: len(ask.tokens)]
    assert isinstance([frame for name, frame in ask.heard if name == "decode-0"][-1], Failed)


async def test_in_one_worker(house: House) -> None:
    """Waiting, computed and generating in an aggregated worker."""
    member = await house.aggregated()
    engine = member.worker.parts.engine
    gate = Gate.on(engine, "prefill_chunk")
    computed = house.desk.ask(prompt_ids(14, 1), ONE, max_tokens=6, timeout_s=0.2)
    waiting = house.desk.ask(prompt_ids(14, 2), ONE, max_tokens=6, timeout_s=SOON_S)
    for ask in (waiting, computed):
        await ends_by_deadline(ask, ONE)
    gate.open()
    gate = Gate.on(engine, "decode_step")
    generating = house.desk.ask(prompt_ids(14, 3), ONE, max_tokens=6, timeout_s=0.2)
    await ends_by_deadline(generating, ONE)
    gate.open()
    await house.empty()


async def test_who_ends_in_time_hears_no_more_of_it(house: House) -> None:
    """A deadline that passes after the end does nothing, and a refused request leaves no clock."""
    await house.prefill()
    decode = await house.decode()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6, timeout_s=60.0)
    refused = house.desk.ask(prompt_ids(300), *BOTH, max_tokens=6, timeout_s=60.0)
    assert await ask.end("decode-0") == "length"
    assert await refused.end("decode-0") == "context_length_exceeded"
    await house.empty()
    for member in house.members.values():
        assert not member.worker._deadlines._running
    assert await house.desk.metric("decode-0", "quiesce_deadlines_total") == 0
    assert decode.worker.is_quiet()
