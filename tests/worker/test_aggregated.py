"""One worker that does both halves: the reference that hand-offs are compared with."""

from __future__ import annotations

import asyncio

import pytest

from .gate import Gate
from .house import House
from .rig import PAGE, alone, prompt_ids

ONE = "aggregated-0"


@pytest.mark.parametrize("length", [1, PAGE, 5 * PAGE + 1])
async def test_an_answer_equals_the_solo_one(house: House, length: int) -> None:
    await house.aggregated()
    ask = house.desk.ask(prompt_ids(length), ONE, max_tokens=12)
    assert await ask.end(ONE) == "length"
    assert ask.tokens == alone(ask.ids, 12)
    await house.empty()


async def test_many_at_once_in_a_small_pool(house: House) -> None:
    """Prompts advance between steps, pages run out, sequences are retracted: each answer is its own."""
    await house.aggregated(pool_tokens=96, context_length=96, headroom_tokens=1)
    asks = [house.desk.ask(prompt_ids(8 + 9 * (i % 4), i), ONE, max_tokens=24) for i in range(8)]
    for ask in asks:
        assert await ask.end(ONE) == "length"
        assert ask.tokens == alone(ask.ids, 24)
    await house.empty()


async def test_a_compute_error_fails_its_request_only(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    member = await house.aggregated()
    engine = member.worker.parts.engine
    inner, calls = engine.prefill_chunk, []

    def first_fails(*args: object, **kwargs: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no such kernel")
        return inner(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "prefill_chunk", first_fails)
    bad, good = (house.desk.ask(prompt_ids(14, i), ONE, max_tokens=6) for i in range(2))
    assert await bad.end(ONE) == "compute_failed"
    assert await good.end(ONE) == "length"
    assert good.tokens == alone(good.ids, 6)
    await house.empty()


async def test_a_broken_engine_ends_the_worker(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row alone goes through, and the engine does not even warm up: that is no request's own error."""
    member = await house.aggregated()

    def broken(*_: object) -> None:
        raise ValueError("no such kernel")

    monkeypatch.setattr(member.worker.parts.engine, "decode_step", broken)
    house.desk.ask(prompt_ids(14), ONE, max_tokens=6)
    assert member.running is not None
    with pytest.raises(ValueError, match="no such kernel"):
        await asyncio.wait_for(member.running, 20)


async def test_abort_while_waiting_and_while_computing(house: House) -> None:
    """One that waits leaves at once; one that is computed keeps its pages until its chunk is over."""
    member = await house.aggregated()
    gate = Gate.on(member.worker.parts.engine, "prefill_chunk")
    computing = house.desk.ask(prompt_ids(40, 1), ONE, max_tokens=6)
    await gate.reached()
    waiting, last = (house.desk.ask(prompt_ids(14, i), ONE, max_tokens=6) for i in (2, 3))
    await last.accepted(ONE)
    house.desk.cancel(waiting, ONE)
    await house.desk.shows(ONE, lambda view: view.waiting == 2)
    house.desk.cancel(computing, ONE)
    view = await house.desk.snapshot(ONE)
    assert (view.waiting, view.pages["used"]) == (2, 10)
    gate.open()
    assert await last.end(ONE) == "length"
    assert last.tokens == alone(last.ids, 6)
    assert (waiting.tokens, computing.tokens) == ([], [])
    await house.empty()


async def test_abort_while_generating(house: House) -> None:
    await house.aggregated()
    ask = house.desk.ask(prompt_ids(14), ONE, max_tokens=200)
    await ask.said(3)
    house.desk.cancel(ask, ONE)
    await house.empty()


async def test_doors(house: House) -> None:
    member = await house.aggregated(max_queue=0)
    assert await house.desk.ask(prompt_ids(300), ONE).end(ONE) == "context_length_exceeded"
    assert await house.desk.ask(prompt_ids(3), ONE).end(ONE) == "queue_full"
    member.worker.draining = True
    assert await house.desk.ask(prompt_ids(3), ONE).end(ONE) == "worker_draining"


async def test_nobody_pairs_with_it(house: House) -> None:
    """A decode worker that dials it is told why not, and stays without that peer."""
    await house.aggregated()
    path = house.members[ONE].path
    (path.parent / "prefill-0.sock").symlink_to(path)
    await house.decode()
    await house.desk.until(lambda: house.desk.peers["decode-0"] == ())
    ask = house.desk.ask(prompt_ids(14), "decode-0", max_tokens=6)
    assert await ask.end("decode-0") == "pair_unavailable"
