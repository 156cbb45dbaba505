"""Each term of the hold inequality is measured where it happens, and what holds cost is counted while they last."""

from __future__ import annotations

from quiesce.ids import Attempt, Incarnation, Peer
from quiesce.protocol.messages import Abort, AbortAck, Bound, Envelope
from quiesce.telemetry.metrics import Telemetry
from quiesce.worker.abort_clock import MOST_KNOWN, AbortClock

from .asking import BOTH, Desk
from .gate import Gate
from .house import House
from .rig import prompt_ids

DECODE, PREFILL = Peer(0, Incarnation("a" * 32)), Peer(0, Incarnation("b" * 32))


async def count(desk: Desk, worker: str, histogram: str) -> float:
    return await desk.metric(worker, f"{histogram}_count")


async def test_a_write_under_way(house: House) -> None:
    """Decode ends a request whose write is held: propagation at decode, the answer and the write at prefill."""
    prefill = await house.prefill()
    await house.decode()
    desk = house.desk
    prefill.writes.hold()
    ask = desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await prefill.writes.held()
    assert await desk.metric("decode-0", "quiesce_waiting_handoffs") == 1
    desk.cancel(ask, "decode-0")
    await desk.shows("decode-0", lambda view: view.pages["held"] == 4)
    await desk.shows("prefill-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    for worker in BOTH:
        first = await desk.metric(worker, "quiesce_held_page_seconds_total")
        assert await desk.metric(worker, "quiesce_held_page_seconds_total") > first >= 0
        assert await desk.metric(worker, "quiesce_oldest_hold_seconds") > 0
    assert await count(desk, "decode-0", "quiesce_abort_propagation_seconds") == 0
    prefill.writes.let_go()
    await house.empty()
    assert await count(desk, "decode-0", "quiesce_abort_propagation_seconds") == 1
    assert await count(desk, "prefill-0", "quiesce_abort_answer_seconds") == 1
    assert await count(desk, "prefill-0", "quiesce_inflight_write_seconds") == 1
    for worker in BOTH:
        assert await desk.metric(worker, "quiesce_oldest_hold_seconds") == 0
        after = await desk.metric(worker, "quiesce_held_page_seconds_total")
        assert await desk.metric(worker, "quiesce_held_page_seconds_total") == after > 0


async def test_a_chunk_being_computed(house: House) -> None:
    prefill = await house.prefill()
    await house.decode()
    gate = Gate.on(prefill.worker.parts.engine, "prefill_chunk")
    ask = house.desk.ask(prompt_ids(40), *BOTH, max_tokens=6)
    await gate.reached()
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("prefill-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    assert await count(house.desk, "prefill-0", "quiesce_remaining_compute_seconds") == 0
    gate.open()
    await house.empty()
    assert await count(house.desk, "prefill-0", "quiesce_remaining_compute_seconds") == 1
    assert await count(house.desk, "prefill-0", "quiesce_inflight_write_seconds") == 0


async def test_a_request_that_goes_well_observes_no_term(house: House) -> None:
    await house.prefill()
    await house.decode()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await ask.end("decode-0")
    await ask.end("prefill-0")
    for worker in BOTH:
        for term in ("abort_propagation", "abort_answer", "remaining_compute", "inflight_write", "hold"):
            assert await count(house.desk, worker, f"quiesce_{term}_seconds") == 0
        assert await house.desk.metric(worker, "quiesce_held_page_seconds_total") == 0
        assert await house.desk.metric(worker, "quiesce_ready") == 1


def answers(telemetry: Telemetry) -> int:
    series = 'quiesce_abort_answer_seconds_count{role="prefill",worker="prefill-0"} '
    return int(float(next(line for line in telemetry.render().splitlines() if line.startswith(series)).split()[-1]))


def test_only_the_first_answer_counts() -> None:
    """ABORT and its ack are repeated for want of each other; the repetitions measure nothing."""
    telemetry = Telemetry("prefill", "prefill-0")
    clock = AbortClock(telemetry)
    for _ in range(3):
        clock.heard(Envelope(DECODE, PREFILL, Attempt(1), Abort()))
        clock.replied(Envelope(PREFILL, DECODE, Attempt(1), Bound()))
        clock.replied(Envelope(PREFILL, DECODE, Attempt(1), AbortAck()))
    clock.replied(Envelope(PREFILL, DECODE, Attempt(2), AbortAck()))
    assert answers(telemetry) == 1


def test_aborts_are_forgotten_some_time() -> None:
    telemetry = Telemetry("prefill", "prefill-0")
    clock = AbortClock(telemetry)
    for number in range(MOST_KNOWN + 1):
        clock.heard(Envelope(DECODE, PREFILL, Attempt(number), Abort()))
    for number in range(MOST_KNOWN + 1):
        clock.replied(Envelope(PREFILL, DECODE, Attempt(number), AbortAck()))
    assert answers(telemetry) == MOST_KNOWN
