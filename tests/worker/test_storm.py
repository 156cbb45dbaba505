"""Seeded weather: requests, departures, lost streams and slow writes at random; nothing leaks, no answer is foreign."""

from __future__ import annotations

import asyncio
import random

import pytest

from quiesce.lab.faults import Pace

from .asking import Ask
from .house import House
from .rig import alone, prompt_ids

PREFILLS = ("prefill-0", "prefill-1")
DECODES = ("decode-0", "decode-1")
REQUESTS = 80

ENDS = {
    "stream_lost",
    "pair_unavailable",
    "pool_quarantined",
    "handoff_timeout",
    "no_lease",
    "aborted",
    "attempt_closed",
}


class Storm:
    """One seed decides everything that can be decided here; interleavings of threads are the machine's."""

    def __init__(self, house: House, seed: int) -> None:
        self.house = house
        self.draw = random.Random(seed)
        self.finished = 0
        self._at_once = asyncio.Semaphore(16)

    async def request(self, number: int) -> None:
        async with self._at_once:
            await self._ask(number)

    async def _ask(self, number: int) -> None:
        """Ask one pair, and leave early or not; a finished answer must be the solo one."""
        draw = self.draw
        prefill, decode = draw.choice(PREFILLS), draw.choice(DECODES)
        await self.house.desk.paired(decode, prefill)  # as a router looks before it pairs
        order = draw.sample([prefill, decode], 2)
        ids = prompt_ids(draw.randrange(1, 60), number)
        max_tokens, leaves_after = draw.randrange(1, 30), draw.choice([None, None, 0, 1, 5, 25])
        ask = self.house.desk.ask(ids, *order, prefill=prefill, max_tokens=max_tokens)
        if leaves_after is None:
            await self._read(ask, prefill, decode, max_tokens)
        else:
            for _ in range(leaves_after):
                await self.house.desk.snapshot(decode)  # as long as a few rounds of the workers take
            self.house.desk.cancel(ask, *draw.sample([prefill, decode], draw.randrange(1, 3)))

    async def _read(self, ask: Ask, prefill: str, decode: str, max_tokens: int) -> None:
        end = await ask.end(decode)
        if end == "length":
            assert ask.tokens == alone(ask.ids, max_tokens)
            self.finished += 1
        else:
            assert end in ENDS, end
            self.house.desk.cancel(ask, prefill)  # as the router does for the other half

    async def lose_streams(self, times: int) -> None:
        for _ in range(times):
            prefill = self.house.members[self.draw.choice(PREFILLS)]
            for _ in range(self.draw.randrange(40)):
                await self.house.desk.snapshot(prefill.name)
            for stream in list(prefill.worker.streams._streams.values()):
                stream.close()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("batch_pages", [0, 1])
async def test_whatever_happens_everything_comes_back(house: House, seed: int, batch_pages: int) -> None:
    small = {
        "pool_tokens": 128,
        "context_length": 128,
        "max_queue": 256,
        "handoff_timeout_s": 3.0,
        "headroom_tokens": 1,
    }
    for name in PREFILLS:
        member = await house.prefill(name, transfer_batch_pages=batch_pages, **small)
        member.writes.order(Pace(seed, 0.004))
    for name in DECODES:
        await house.decode(name, PREFILLS, hold_deadline_s=0.05, quarantine_budget=1.0, **small)
    storm = Storm(house, seed)
    losing = asyncio.create_task(storm.lose_streams(3))
    await asyncio.gather(*(storm.request(number) for number in range(REQUESTS)))
    await losing
    for name in DECODES:
        await house.desk.paired(name, *PREFILLS)
    await house.empty()
    assert storm.finished > 5
    for name in DECODES:
        decode = house.members[name].worker
        assert decode._landing.free_seats == decode.parts.pool.slots
        assert await house.desk.metric(name, "quiesce_tag_mismatches_total") == 0
        assert await house.desk.metric(name, "quiesce_unsafe_releases_total") == 0
    for member in house.members.values():
        assert not member.worker._owners
        assert not member.worker.broken.done()
