"""Who comes first when not all can be served at once: higher priority, then arrival; nobody who runs is stopped."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from quiesce.protocol.dispatch import Sampling
from quiesce.worker.grammars import Constraint, Lanes

from .asking import BOTH
from .gate import Gate
from .house import House, Member
from .rig import PAGE, Rig, alone, prompt_ids

ONE = "aggregated-0"


def computed(member: Member[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Gate, list[int]]:
    """The lengths of prompts (one chunk each) in the order in which the engine got them; the first waits at a gate."""
    engine = member.worker.parts.engine
    gate, lengths = Gate(engine.prefill_chunk), []

    def noted(ids: Any, *args: Any, **kwargs: Any) -> Any:
        lengths.append(len(ids))
        return gate(ids, *args, **kwargs)

    monkeypatch.setattr(engine, "prefill_chunk", noted)
    return gate, lengths


ASKED = ((8, 0), (9, -1), (10, 5), (11, 0), (12, 5))
"""(prompt length, priority), by arrival; the order of service is 10 12 8 11 9."""


@pytest.mark.parametrize("queue", ["prefill's", "decode's"])
async def test_bound_prompts_and_waiting_requests(house: House, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    """Prefill computes bound prompts in order. With one row to spare at decode, all others wait there, in order too."""
    prefill = await house.prefill(prefix_cache="off")
    rows = 4 if queue == "prefill's" else 1
    decode = await house.decode(max_running_requests=rows, prefix_cache="off")
    gate, lengths = computed(prefill, monkeypatch)
    first = [house.desk.ask(prompt_ids(length), *BOTH, max_tokens=2) for length in ((7,) if rows == 4 else (7, 6))]
    await gate.reached()
    asks = [house.desk.ask(prompt_ids(length), *BOTH, max_tokens=2, priority=priority) for length, priority in ASKED]
    line: Any = prefill.worker._queue if rows == 4 else decode.worker._waiting
    await house.desk.shows("decode-0", lambda _: len(line) == len(ASKED))
    gate.open()
    for ask in (*first, *asks):
        await ask.answers(2)
    assert lengths[len(first) :] == [10, 12, 8, 11, 9]
    await house.empty()


async def test_prompts_in_one_worker(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was started goes on; the others follow by priority."""
    member = await house.aggregated(prefix_cache="off")
    gate, lengths = computed(member, monkeypatch)
    first = house.desk.ask(prompt_ids(7), ONE, max_tokens=2)
    await gate.reached()
    asks = [house.desk.ask(prompt_ids(length), ONE, max_tokens=2, priority=priority) for length, priority in ASKED]
    await asks[-1].accepted(ONE)
    gate.open()
    for ask in (first, *asks):
        assert await ask.end(ONE) == "length"
    assert lengths[1:] == [10, 12, 8, 11, 9]


async def test_a_started_prompt_is_not_put_off(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its later chunks come before another's first, whatever that one's priority."""
    member = await house.aggregated(prefix_cache="off")
    gate, lengths = computed(member, monkeypatch)
    long = house.desk.ask(prompt_ids(40), ONE, max_tokens=2)
    await gate.reached()
    urgent = house.desk.ask(prompt_ids(5), ONE, max_tokens=2, priority=9)
    await urgent.accepted(ONE)
    gate.open()
    for ask in (long, urgent):
        assert await ask.end(ONE) == "length"
    assert lengths == [16, 16, 8, 5]


async def test_the_least_urgent_gives_way() -> None:
    """Short of pages, an older sequence of lower priority is retracted, and comes back after the others ended."""
    rig = Rig(pages=12)
    for name, priority in (("low", 0), ("high", 3), ("usual", 1)):
        rig.begin(name, prompt_ids(11, priority), 20, priority=priority)
    retracted = set()
    while await rig.batch.step():
        retracted |= {sequence.request for sequence in rig.batch._retracted}
    assert "low" in retracted
    assert "high" not in retracted
    assert list(rig.said.finish) == ["high", "usual", "low"]
    assert rig.said.tokens == {
        name: alone(prompt_ids(11, priority), 20) for name, priority in (("low", 0), ("high", 3), ("usual", 1))
    }
    assert rig.all_free
    rig.close()


async def test_a_free_row_goes_to_the_most_urgent() -> None:
    rig = Rig(max_running=1)
    for number, priority in enumerate((0, 0, 2, 1)):
        rig.begin(f"r{number}", prompt_ids(PAGE, number), 4, priority=priority)
        await rig.batch.step()
    await rig.run()
    assert list(rig.said.finish) == ["r0", "r2", "r3", "r1"]
    rig.close()


@pytest.mark.parametrize("role", ["prefill", "decode", "aggregated"])
async def test_a_load_tells_what_the_door_counts(house: House, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """At `max_queue` the next one is refused, and the router knew."""
    limits: dict[str, Any] = {role: {"max_queue": 2}}
    if role == "aggregated":
        member: Any = await house.aggregated(**limits[role])
    else:
        prefill = await house.prefill(**limits.get("prefill", {}))
        decode = await house.decode(max_running_requests=1, **limits.get("decode", {}))
        member = prefill if role == "prefill" else decode
    computing = member if role == "aggregated" else prefill
    workers = (ONE,) if role == "aggregated" else BOTH
    gate, _ = computed(computing, monkeypatch)
    for expected in range(12):
        if member.worker.load().queued >= 2:
            break
        ask = house.desk.ask(prompt_ids(7), *workers, max_tokens=2)
        await ask.accepted(member.name)
        assert member.worker.load().queued <= expected + 1
    assert member.worker.load().queued == 2
    refused = house.desk.ask(prompt_ids(7), *workers, max_tokens=2)
    assert await refused.end(member.name) == "queue_full"
    house.desk.cancel(refused, *workers)
    gate.open()
    for each in house.desk.asks.values():
        await each.end(member.name)
    assert member.worker.load().queued == 0 or role == "prefill"
    await house.empty()


class AnythingGoes:
    """A compiled grammar that allows every token."""

    compiled = SimpleNamespace(is_slow=False)

    def say(self, token: int) -> None:
        """It does not matter."""

    def allowed(self) -> Any:
        return np.ones(256, bool)


@pytest.mark.parametrize("workers", [BOTH, (ONE,)])
async def test_a_grammar_that_is_compiled_for_long_holds_up_nobody_else(house: House, workers: tuple[str, ...]) -> None:
    """Its request keeps its place, and others of lower priority are computed meanwhile."""
    if len(workers) == 2:
        await house.prefill()
        await house.decode()
    else:
        await house.aggregated()
    compiling: Future[Any] = Future()
    lanes = Lanes()
    for member in house.members.values():
        member.worker.parts.grammars.begin = lambda grammar: Constraint(compiling, lanes) if grammar else None
    greedy = Sampling(temperature=0.0, grammar="anything")
    slow = house.desk.ask(prompt_ids(9), *workers, max_tokens=4, sampling=greedy, priority=5)
    others = [house.desk.ask(prompt_ids(9, i), *workers, max_tokens=4) for i in (1, 2)]
    for ask in others:
        assert await ask.end(workers[-1]) == "length"
        assert ask.tokens == alone(ask.ids, 4)
    assert slow.tokens == []
    compiling.set_result(AnythingGoes())
    assert await slow.end(workers[-1]) == "length"
    assert slow.tokens == alone(slow.ids, 4)
    await house.empty()
    lanes.close()
