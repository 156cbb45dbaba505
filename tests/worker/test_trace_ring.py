"""The last steps of a machine can be asked for, and say nothing of a user."""

from __future__ import annotations

import re

from quiesce.control.frames import MAX_FRAME_BYTES, encode
from quiesce.ids import Attempt
from quiesce.protocol.dispatch import Traced
from quiesce.protocol.receiver_io import Attach, Finished, Minted
from quiesce.worker.driver import Driver
from quiesce.worker.trace_ring import MOST_LINE_CHARS, MOST_STEPS, TraceRing

from .asking import BOTH
from .house import House
from .rig import prompt_ids


def test_it_keeps_the_last_steps() -> None:
    ring = TraceRing("decode", 2)
    for number in (1, 2, 3):
        ring.record(Finished(Attempt(number)), (Attach(Attempt(number), 77),))
    lines = [line.partition(" ")[2] for line in ring.lines()]
    assert lines == [
        f"{number} decode <- Finished(attempt={number}) -> Attach(attempt={number}, first_token=*)" for number in (2, 3)
    ]


def test_a_full_ring_of_long_lines_fits_a_frame() -> None:
    ring = TraceRing("decode")
    for _ in range(MOST_STEPS + 1):
        ring.record(Finished(Attempt(1)), (Finished(Attempt(1)),) * (MOST_LINE_CHARS // 10))
    lines = ring.lines()
    assert len(lines) == MOST_STEPS
    assert len(encode(Traced(1, lines))) < MAX_FRAME_BYTES


def test_a_driver_records_before_it_carries_out() -> None:
    seen: list[str] = []
    driver: Driver[int, str, str] = Driver(
        0,
        lambda state, event: (state + 1, (f"did {event}",)),
        seen.append,
        lambda event, effects: seen.append(f"step {event}: {', '.join(effects)}"),
    )
    driver.feed("x")
    assert seen == ["step x: did x", "did x"]


async def test_both_halves_tell_how_a_hand_off_went(house: House) -> None:
    await house.prefill()
    await house.decode()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await ask.end("decode-0")
    await house.empty()
    decode, prefill = await house.desk.trace("decode-0"), await house.desk.trace("prefill-0")
    assert re.match(r"\d+\.\d{6} 1 decode@[0-9a-f]{8} <- Reserve\(request=req-", decode[0])
    assert Minted.__name__ in decode[0]
    assert any("first_token=*" in line for line in decode)
    assert re.match(r"\S+ 1 prefill@[0-9a-f]{8} <- Arrived\(", prefill[0])
    assert not any(re.search(r"(first_token|digest)=[^*]", line) for line in (*decode, *prefill))
