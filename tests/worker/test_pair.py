"""A prefill and a decode worker together: answers equal solo ones, and every way out gives everything back."""

from __future__ import annotations

import pytest

from quiesce.lab.faults import Step
from quiesce.protocol.dispatch import Failed
from quiesce.transport.placement import Placement, Placing

from .asking import BOTH, Ask, is_empty
from .gate import Gate
from .house import House
from .requests import submit
from .rig import PAGE, alone, prompt_ids

# ---------------------------------------------------------------- the happy path


@pytest.mark.parametrize("length", [1, PAGE, 5 * PAGE - 1, 5 * PAGE, 5 * PAGE + 1])
async def test_an_answer_equals_the_solo_one(house: House, length: int) -> None:
    await house.prefill()
    await house.decode()
    ask = house.desk.ask(prompt_ids(length), *BOTH, max_tokens=12)
    assert await ask.end("decode-0") == "length"
    assert await ask.end("prefill-0") == "handed_off"
    assert ask.tokens == alone(ask.ids, 12)
    await house.empty()


async def test_the_digest_travels_and_verifies(house: House) -> None:
    """With --payload-digest the metadata slot has the digest that DONE says."""
    await house.prefill(payload_digest="blake2b")
    decode = await house.decode(payload_digest="blake2b")
    ask = house.desk.ask(prompt_ids(30), *BOTH, max_tokens=6)
    await ask.answers(6)
    assert decode.worker.parts.pool.metadata[0, 4:6].all()


class Flipped(Placement):
    """Every write lands with one wrong bit, and its tags."""

    def stamp(self, placing: Placing) -> None:
        placing.target.page_view()[placing.write.target_pages[0], 0] ^= 1
        super().stamp(placing)


async def test_a_wrong_bit_is_caught_by_the_digest(house: House) -> None:
    await house.prefill(payload_digest="blake2b", placement=Flipped())
    await house.decode(payload_digest="blake2b")
    ask = house.desk.ask(prompt_ids(30), *BOTH, max_tokens=6)
    assert await ask.end("decode-0") == "digest_mismatch"
    assert ask.tokens == []
    await house.empty()


async def test_pages_that_travel_one_by_one(house: House) -> None:
    await house.prefill(transfer_batch_pages=1)
    await house.decode()
    ask = house.desk.ask(prompt_ids(9 * PAGE + 1), *BOTH, max_tokens=6)
    await ask.answers(6)
    assert await house.desk.metric("prefill-0", "quiesce_writes_total") == 10


async def test_many_at_once_on_two_pairs(house: House) -> None:
    """Twelve requests on every combination of two prefills and two decodes, in small pools: each says its own."""
    prefills, decodes = ("prefill-0", "prefill-1"), ("decode-0", "decode-1")
    for name in prefills:
        await house.prefill(name, pool_tokens=96, context_length=96)
    for name in decodes:
        await house.decode(name, prefills, pool_tokens=96, context_length=96)
    asks: list[tuple[str, Ask]] = []
    for i in range(12):
        prefill, decode = prefills[i % 2], decodes[i // 2 % 2]
        ids = prompt_ids(8 + 5 * (i % 7), i)
        asks.append((decode, house.desk.ask(ids, prefill, decode, prefill=prefill, max_tokens=20)))
    for decode, ask in asks:
        assert await ask.end(decode) == "length"
        assert ask.tokens == alone(ask.ids, 20)
    await house.empty()


# ---------------------------------------------------------------- doors


@pytest.mark.parametrize("order", [("decode-0", "prefill-0"), ("prefill-0", "decode-0")])
async def test_a_refusal_at_prefill_reaches_decode(house: House, order: tuple[str, str]) -> None:
    """PUBLISH that waits for a request that is refused, or comes after it, is answered FAIL at once (rule 8)."""
    await house.prefill(context_length=16, pool_tokens=16)
    await house.decode()
    ask = house.desk.ask(prompt_ids(40), *order, max_tokens=6)
    assert await ask.end("prefill-0") == "context_length_exceeded"
    assert await ask.end("decode-0") == "context_length_exceeded"
    await house.empty()


@pytest.mark.parametrize("order", [("decode-0", "prefill-0"), ("prefill-0", "decode-0")])
async def test_a_draining_prefill_tells_decode_at_once(house: House, order: tuple[str, str]) -> None:
    """The same for every other reason of a door."""
    prefill = await house.prefill()
    await house.decode()
    prefill.worker.draining = True
    ask = house.desk.ask(prompt_ids(40), *order, max_tokens=6)
    assert await ask.end("prefill-0") == "worker_draining"
    assert await ask.end("decode-0") == "worker_draining"


async def test_a_refused_request_creates_nothing(house: House) -> None:
    await house.prefill()
    await house.decode(max_queue=0)
    for changes, code in (
        ({"max_tokens": 300}, "context_length_exceeded"),
        ({"prefill": "prefill-9"}, "pair_unavailable"),
        ({}, "queue_full"),
    ):
        ask = house.desk.ask(prompt_ids(8), "decode-0", **changes)
        assert await ask.end("decode-0") == code
        assert isinstance(ask.heard[0][1], Failed)
        assert ask.heard[0][1].rejected
        assert is_empty(await house.desk.snapshot("decode-0"))


async def test_an_id_stays_in_use_until_everything_of_it_is_gone(house: House) -> None:
    """Cancelled, but its write is still under way: a second request must not take the first one's place."""
    prefill = await house.prefill()
    await house.decode()
    ask = await house.held(prefill, prompt_ids(40))
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("decode-0", lambda view: view.pages["held"] > 0)
    house.desk.streams["prefill-0"].send(submit(ask.ids, ask.request, 77, max_tokens=6))
    assert await ask.end("prefill-0") == "duplicate_request"
    prefill.writes.let_go()
    await house.empty()


async def test_a_token_outside_the_vocabulary_is_refused(house: House) -> None:
    await house.prefill()
    await house.decode()
    ids = prompt_ids(8)
    ids[3] = 2**31 - 1
    ask = house.desk.ask(ids, *BOTH, max_tokens=6)
    for worker in BOTH:
        assert await ask.end(worker) == "invalid_token_id"


# ---------------------------------------------------------------- aborts, in each phase


async def test_abort_while_waiting_for_pages_at_decode(house: House) -> None:
    """The first in the queue leaves: the next one, which fits, does not wait for pages to come back."""
    prefill = await house.prefill()
    await house.decode(pool_tokens=64, context_length=64)
    first = await house.held(prefill, prompt_ids(40, 1))
    too_large = house.desk.ask(prompt_ids(40, 2), *BOTH, max_tokens=6)
    small = house.desk.ask(prompt_ids(8, 3), *BOTH, max_tokens=6)
    await small.accepted("decode-0")
    house.desk.cancel(too_large, *BOTH)
    assert await small.end("decode-0") == "length"
    prefill.writes.let_go()
    assert await first.end("decode-0") == "length"
    assert (first.tokens, small.tokens) == (alone(first.ids, 6), alone(small.ids, 6))
    await house.empty()


async def test_abort_while_waiting_for_pages_at_prefill(house: House) -> None:
    prefill = await house.prefill(pool_tokens=64, context_length=64)
    await house.decode()
    first = await house.held(prefill, prompt_ids(40, 1))
    too_large = house.desk.ask(prompt_ids(40, 2), *BOTH, max_tokens=6)
    small = house.desk.ask(prompt_ids(8, 3), *BOTH, max_tokens=6)
    await house.desk.shows("prefill-0", lambda view: [room.state for room in view.rooms].count("waiting") == 2)
    house.desk.cancel(too_large, *BOTH)
    assert await small.end("decode-0") == "length"
    prefill.writes.let_go()
    assert await first.end("decode-0") == "length"
    assert (first.tokens, small.tokens) == (alone(first.ids, 6), alone(small.ids, 6))
    await house.empty()


@pytest.mark.parametrize("who", [BOTH, ("prefill-0",), ("decode-0",)], ids=["both", "prefill", "decode"])
async def test_abort_while_computing(house: House, who: tuple[str, ...]) -> None:
    """Whoever is told, both halves end; the source pages stay until the engine's chunk is over (rule 16)."""
    prefill = await house.prefill()
    await house.decode()
    engine = prefill.worker.parts.engine
    gate = Gate.on(engine, "prefill_chunk")
    ask = house.desk.ask(prompt_ids(40), *BOTH, max_tokens=6)
    await gate.reached()
    house.desk.cancel(ask, *who)
    await house.desk.shows("decode-0", is_empty)
    assert (await house.desk.snapshot("prefill-0")).pages["held"] == 10
    gate.open()
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_releases_total", 'proof="drained"') == 1
    assert ask.tokens == []


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("who", [BOTH, ("prefill-0",), ("decode-0",)], ids=["both", "prefill", "decode"])
async def test_abort_while_a_write_is_under_way(house: House, step: Step, who: tuple[str, ...]) -> None:
    """Nothing comes back before the write has settled, on neither side; then everything does, drained."""
    prefill = await house.prefill()
    await house.decode()
    prefill.writes.hold(step)
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await prefill.writes.held()
    house.desk.cancel(ask, *who)
    await house.desk.shows("decode-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    view = await house.desk.shows("prefill-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    assert view.pages["held"] == 4
    prefill.writes.let_go()
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_releases_total", 'proof="drained"') == 1
    assert ask.tokens == []


async def test_abort_while_generating(house: House) -> None:
    await house.prefill()
    await house.decode()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=200)
    await ask.said(3)
    house.desk.cancel(ask, *BOTH)
    await house.empty()


async def test_a_router_that_leaves_ends_its_requests(house: House) -> None:
    prefill = await house.prefill()
    await house.decode()
    prefill.writes.hold()
    house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await prefill.writes.held()
    for name in BOTH:
        house.desk.streams[name].close()
        await house.desk.attach(name, house.members[name].path)
    await house.desk.shows("decode-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    prefill.writes.let_go()
    await house.empty()
