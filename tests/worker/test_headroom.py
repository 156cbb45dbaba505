"""What is reserved for hand-offs leaves running sequences the pages that they will need; nobody starves anybody."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.errors import OutOfPages
from quiesce.kv.allocator import PageState
from quiesce.worker.headroom import growth_pages, leaves_headroom

from .asking import BOTH
from .gate import Gate
from .house import House, Member
from .rig import PAGE, Rig, alone, prompt_ids


@given(st.integers(1, 99), st.integers(0, 99), st.integers(1, 9))
def test_growth_is_what_the_last_token_needs(tokens: int, steps: int, page_size: int) -> None:
    """As many pages as one by one would be added, one token at a time."""
    pages = -(-tokens // page_size)
    added = sum((tokens + step) % page_size == 0 for step in range(steps))
    assert growth_pages(tokens, pages, steps, page_size) == added


def test_who_is_alone_may_have_all_there_is() -> None:
    assert leaves_headroom(10, 10, 99, None)
    assert not leaves_headroom(9, 10, 0, None)
    assert leaves_headroom(10, 4, 3, 3)
    assert not leaves_headroom(10, 4, 3, 4)


def retractions(member: Member[Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that the worker retracts from now on."""
    batch, retracted = member.worker.batch, []
    inner = batch._retract

    async def noted(sequence: Any) -> None:
        retracted.append(sequence.request)
        await inner(sequence)

    monkeypatch.setattr(batch, "_retract", noted)
    return retracted


async def test_hand_offs_that_wait_starve_nobody(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefill stands still, and hand-offs want more pages than there are; who runs grows to its end meanwhile."""
    prefill = await house.prefill(pool_tokens=1024)
    decode = await house.decode()
    retracted = retractions(decode, monkeypatch)
    running = [house.desk.ask(prompt_ids(14, i), *BOTH, max_tokens=90) for i in range(2)]
    for ask in running:
        await ask.said(1)
    gate = Gate.on(prefill.worker.parts.engine, "prefill_chunk")
    waiting = [house.desk.ask(prompt_ids(30, 5 + i), *BOTH, max_tokens=20) for i in range(8)]
    for ask in running:
        await ask.answers(90)
    assert retracted == []
    gate.open()
    for ask in waiting:
        await ask.answers(20)
    assert retracted == []
    await house.empty()


async def test_prompts_starve_nobody_in_one_worker(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    member = await house.aggregated(max_running_requests=8)
    retracted = retractions(member, monkeypatch)
    asks = [house.desk.ask(prompt_ids(20, i), "aggregated-0", max_tokens=60) for i in range(6)]
    for ask in asks:
        assert await ask.end("aggregated-0") == "length"
        assert ask.tokens == alone(ask.ids, 60)
    assert retracted == []
    await house.empty()


async def test_short_promises_retract_and_lose_nobody(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one token promised, pages do run out: sequences go and come back, and all end with their own answers."""
    await house.prefill(pool_tokens=1024)
    decode = await house.decode(headroom_tokens=1)
    retracted = retractions(decode, monkeypatch)
    asks = [house.desk.ask(prompt_ids(20 + i, i), *BOTH, max_tokens=70) for i in range(8)]
    for ask in asks:
        await ask.answers(70)
    assert retracted
    await house.empty()


# ---------------------------------------------------------------- seeded schedules of one batch


class Schedule:
    """Reservations that are made when the policy allows and land when the seed says, beside a batch that steps."""

    def __init__(self, seed: int, promise: int) -> None:
        self.draw = random.Random(seed)
        self.promise = promise
        self.rig = Rig(pages=24, max_running=4)
        self.asked = {
            f"r{i}": (prompt_ids(self.draw.randrange(1, 40), i), self.draw.randrange(1, 40)) for i in range(9)
        }
        self.waiting = list(self.asked)
        self.under_way: dict[str, Any] = {}
        self.retracted: list[str] = []
        self.steps = 0

    def reserve(self) -> None:
        name = self.waiting[0]
        pages = self.rig.pool.layout.pages_for(len(self.asked[name][0]))
        promised = self.rig.batch.growth_pages(self.promise) + sum(self._growth(each) for each in self.under_way)
        others = promised if self.rig.batch.running or self.under_way else None
        available = self.rig.allocator.available_pages
        if self.rig.batch.retracted or not leaves_headroom(available, pages, self._growth(name), others):
            return
        try:
            self.under_way[name] = self.rig.allocator.allocate(pages, name, PageState.RESERVED)
        except OutOfPages:
            return
        self.waiting.pop(0)

    def _growth(self, name: str) -> int:
        ids, max_tokens = self.asked[name]
        pages = self.rig.pool.layout.pages_for(len(ids))
        return growth_pages(len(ids), pages, min(max_tokens - 1, self.promise), PAGE)

    def land(self) -> None:
        """The hand-off's pages become its sequence's: as the rig computes prompts, they are taken anew."""
        name = self.draw.choice(list(self.under_way))
        self.rig.allocator.release(self.under_way.pop(name).pages)
        ids, max_tokens = self.asked[name]
        self.rig.begin(name, ids, max_tokens)

    async def run(self) -> None:
        while self.waiting or self.under_way or self.rig.batch.running:
            if self.waiting and self.draw.random() < 0.7:
                self.reserve()
            if self.under_way and self.draw.random() < 0.3:
                self.land()
            await self.rig.batch.step()
            self.retracted += [s.request for s in self.rig.batch._retracted]
            self.steps += 1
            assert self.steps < 3_000, "nobody gets anywhere"


@pytest.mark.parametrize("seed", range(6))
async def test_no_schedule_retracts_for_a_later_reservation(seed: int) -> None:
    """Promised all that it may still say, nobody is ever retracted, whenever others reserve, land or end."""
    schedule = Schedule(seed, promise=1_000)
    await schedule.run()
    assert schedule.retracted == []
    assert schedule.rig.said.tokens == {name: alone(ids, n) for name, (ids, n) in schedule.asked.items()}
    schedule.rig.close()


@pytest.mark.parametrize("promise", [1, 6])
@pytest.mark.parametrize("seed", range(4))
async def test_no_schedule_goes_round_in_circles(seed: int, promise: int) -> None:
    """Retraction and reservation never take turns without end, and all is free at last."""
    schedule = Schedule(seed, promise)
    await schedule.run()
    assert schedule.rig.said.tokens == {name: alone(ids, n) for name, (ids, n) in schedule.asked.items()}
    assert schedule.rig.all_free
    schedule.rig.close()
