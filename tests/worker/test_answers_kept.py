"""A decode worker keeps the full pages of answers that ended well: the next turn's prompt begins with them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quiesce.ids import RequestId
from quiesce.kv.runs import Pages
from quiesce.protocol.dispatch import Sampling

from .asking import BOTH, Ask
from .house import House, Member
from .rig import PAGE, Rig, alone, prompt_ids
from .test_prefix import MODES, PROMPT, Opening, answered, cached_of, open_pair

Ids = NDArray[np.int32]

SAID = 12
HELD = (PROMPT + SAID - 1) // PAGE
"""Full pages of a first turn. The last token that was drawn is in no page."""


def next_turn(first: Ask) -> Ids:
    turn: Ids = np.concatenate([first.ids, np.array(first.tokens, np.int32), prompt_ids(6, 9)])
    return turn


def cached_pages(member: Member[Any], ids: Ids) -> Pages:
    reader = member.worker.parts.prefixes.read("", ids.astype("<u4").tobytes())
    pages: Pages = reader.pages
    reader.leave()
    return pages


async def test_the_next_turn_is_sent_what_decode_lacks(house: House) -> None:
    await open_pair(house)
    first = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=SAID)
    await answered(house, first, "decode-0")
    sent_bytes = await house.desk.metric("prefill-0", "quiesce_transfer_bytes_total")
    second = house.desk.ask(next_turn(first), *BOTH, max_tokens=SAID)
    await answered(house, second, "decode-0")
    again_bytes = await house.desk.metric("prefill-0", "quiesce_transfer_bytes_total") - sent_bytes
    pages = -(-len(second.ids) // PAGE)
    assert again_bytes * (PROMPT // PAGE + 1) == sent_bytes * (pages - HELD)
    assert await house.desk.metric("decode-0", "quiesce_prefix_tokens_total") == HELD * PAGE
    await house.empty()


@MODES
async def test_turns_count_alike_with_and_without_a_hand_off(
    house: House, workers: tuple[str, ...], open_workers: Opening
) -> None:
    """What prefill computed again was not cached for whoever pays."""
    await open_workers(house)
    first = house.desk.ask(prompt_ids(PROMPT), *workers, max_tokens=SAID)
    await answered(house, first, workers[-1])
    second = house.desk.ask(next_turn(first), *workers, max_tokens=SAID)
    assert await answered(house, second, workers[-1]) == PROMPT // PAGE * PAGE


async def test_what_decode_computed_is_what_prefill_computes_to_the_bit(house: House) -> None:
    """With --deterministic."""
    prefill, decode = await house.prefill(deterministic=True), await house.decode(deterministic=True)
    first = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=SAID)
    await answered(house, first, "decode-0")
    second = house.desk.ask(next_turn(first), *BOTH, max_tokens=SAID)
    await answered(house, second, "decode-0")
    kept, computed = (cached_pages(member, second.ids)[:HELD] for member in (decode, prefill))
    assert len(kept) == len(computed) == HELD
    assert (decode.worker.parts.pool.kv[kept] == prefill.worker.parts.pool.kv[computed]).all()


async def test_another_tenant_finds_nothing_of_it(house: House) -> None:
    await open_pair(house)
    first = house.desk.ask(prompt_ids(PROMPT), *BOTH, salt="tenant-a", max_tokens=SAID)
    await answered(house, first, "decode-0")
    second = house.desk.ask(next_turn(first), *BOTH, salt="tenant-b", max_tokens=SAID)
    await answered(house, second, "decode-0")
    assert await house.desk.metric("decode-0", "quiesce_prefix_tokens_total") == 0
    assert cached_of(second) == 0


async def test_who_stops_an_answer_leaves_what_there_is_of_it(house: House) -> None:
    """A stop string ends it so, in the router."""
    await house.prefill()
    decode = await house.decode()
    ask = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=200)
    await ask.said(SAID)
    house.desk.cancel(ask, "decode-0")
    await house.desk.shows("decode-0", lambda view: not (view.running or view.rooms))
    said = np.array(ask.tokens[:SAID], np.int32)
    assert len(cached_pages(decode, np.concatenate([ask.ids, said]))) >= HELD
    await house.empty()


async def test_two_that_were_computed_side_by_side_keep_their_answers(house: House) -> None:
    """The later one's prompt is a copy that no tree takes; its answer goes on behind the other one's prompt."""
    await open_pair(house)
    warm = [Sampling(temperature=1.5, seed=seed) for seed in (1, 2)]
    asks = [house.desk.ask(prompt_ids(PROMPT), *BOTH, sampling=each, max_tokens=SAID) for each in warm]
    for end in await asyncio.gather(*(ask.end("decode-0") for ask in asks)):
        assert end == "length"
    assert asks[0].tokens != asks[1].tokens
    for number, ask in enumerate(asks):
        second = house.desk.ask(next_turn(ask), *BOTH, max_tokens=SAID)
        await answered(house, second, "decode-0")
        assert await house.desk.metric("decode-0", "quiesce_prefix_tokens_total") >= (number + 1) * HELD * PAGE
    await house.empty()


async def test_off_keeps_no_answer(house: House) -> None:
    await house.prefill(prefix_cache="off")
    await house.decode(prefix_cache="off")
    await answered(house, house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=SAID), "decode-0")
    assert (await house.desk.snapshot("decode-0")).pages["cached"] == 0


# ---------------------------------------------------------------- rule 12: what failed is not kept


async def test_an_answer_that_lost_a_tag_is_not_kept() -> None:
    rig = Rig()
    sequence = rig.begin("r", prompt_ids(9), 20)
    rig.begin("well", prompt_ids(9, 1), 20)
    await rig.batch.step()
    rig.pool.tags[sequence.pages[-1]] = 1
    await rig.run()
    assert rig.said.kept == ["well"]
    rig.close()


async def test_an_answer_that_could_not_be_computed_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    sequence = rig.begin("r", prompt_ids(9), 20)

    def broken(*_: object) -> None:
        raise ValueError("of this sequence alone")

    monkeypatch.setattr(sequence, "accept", broken, raising=False)
    rig.begin("well", prompt_ids(9, 1), 20)
    await rig.run()
    assert rig.said.kept == ["well"]
    assert RequestId("r") in rig.said.failures
    rig.close()


async def test_retraction_is_no_end() -> None:
    """Each answer ends once, wherever its pages were meanwhile."""
    rig = Rig(pages=14)
    for i in range(4):
        rig.begin(f"r{i}", prompt_ids(9 + i, i), 24)
    retracted = 0
    while await rig.batch.step():
        retracted = max(retracted, rig.batch.retracted)
        assert len(rig.said.kept) == len(rig.said.finish)
    assert retracted >= 2
    assert sorted(rig.said.kept) == ["r0", "r1", "r2", "r3"]
    rig.close()


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1])
async def test_only_what_is_in_the_pages_counts(length: int) -> None:
    """The last token that was drawn has no KV yet, at any place in a page."""
    rig = Rig()
    sequence = rig.begin("r", prompt_ids(length), 2 * PAGE)
    await rig.run()
    said = alone(prompt_ids(length), 2 * PAGE)
    assert np.frombuffer(sequence.computed_ids, "<u4").tolist() == said[:-1]
    rig.close()
