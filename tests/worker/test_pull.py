"""Prefill and decode where decode reads (`--transfer pull`): answers as ever, and no page back without a proof."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quiesce.lab.faults import Held, Hold
from quiesce.protocol.dispatch import Flush
from quiesce.worker.prefill import PrefillWorker

from .asking import Ask, is_empty
from .house import House, Member
from .rig import alone, prompt_ids

BOTH = ("prefill-0", "decode-0")
PULL: dict[str, Any] = {"transport": "tcp", "transfer": "pull"}


async def pair(house: House, **changes: Any) -> tuple[Member[PrefillWorker], Member[Any]]:
    return await house.prefill(**PULL, **changes), await house.decode(**PULL, **changes)


async def answers(house: House, ask: Ask, max_tokens: int = 12) -> None:
    assert await ask.end("decode-0") == "length"
    assert await ask.end("prefill-0") == "handed_off"
    assert ask.tokens == alone(ask.ids, max_tokens)


async def serves(house: House, seed: int = 9) -> None:
    await answers(house, house.desk.ask(prompt_ids(14, seed), *BOTH, max_tokens=12))
    await house.empty()


async def proofs(house: House, worker: str, proof: str) -> float:
    return await house.desk.metric(worker, "quiesce_releases_total", f'proof="{proof}"')


@pytest.mark.parametrize("length", [1, 4, 14, 39])
@pytest.mark.parametrize("digest", ["off", "blake2b"])
async def test_an_answer_is_that_of_one_process(house: House, length: int, digest: str) -> None:
    await pair(house, payload_digest=digest, transfer_batch_pages=3)
    await answers(house, house.desk.ask(prompt_ids(length), *BOTH, max_tokens=12))
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_reads_total", 'outcome="landed"') == -(-length // 12)


async def test_what_is_lent_is_shown(house: House) -> None:
    prefill, _ = await pair(house)
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    await prefill.writes.held()
    lent, reading = [(await house.desk.snapshot(worker)).rooms for worker in BOTH]
    assert [(room.state, room.pages) for room in (*lent, *reading)] == [("lent", 4), ("reading", 4)]
    assert prefill.worker.load().queued == 0
    prefill.writes.let_go()
    await answers(house, ask)
    await house.empty()


async def test_a_client_that_leaves_before_its_read_was_served(house: House) -> None:
    """Prefill closes the window, which frees its own pages; decode's await the end of the read."""
    _, decode = await pair(house)
    decode.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    await decode.writes.held()
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("prefill-0", is_empty)
    view = await house.desk.snapshot("decode-0")
    assert ([room.state for room in view.rooms], view.pages["held"]) == (["holding"], 4)
    decode.writes.let_go()
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_reads_total", 'outcome="failed_quiesced"') == 1
    assert (await proofs(house, "decode-0", "drained"), await proofs(house, "prefill-0", "fenced")) == (1, 1)
    await serves(house)


async def test_a_client_that_leaves_while_its_read_is_served(house: House) -> None:
    prefill, _ = await pair(house)
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    await prefill.writes.held()
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("decode-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    prefill.writes.let_go()
    await house.empty()
    assert await proofs(house, "decode-0", "drained") == 1
    await serves(house)


async def test_bytes_that_are_not_what_was_offered_are_caught_by_the_digest(house: House) -> None:
    prefill, _ = await pair(house, payload_digest="blake2b")
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    await prefill.writes.held()
    pool = prefill.worker.parts.pool
    pool.kv[:] = np.float32(7.0)
    prefill.writes.let_go()
    assert await ask.end("decode-0") == "digest_mismatch"
    await house.empty()
    assert (await house.desk.snapshot("decode-0")).pages["cached"] == 0


async def test_a_hold_that_nobody_ends_costs_decode_its_endpoint_if_nobody_else_reads(house: House) -> None:
    """Closed and joined, nothing of the read lands any more: a proof of its own. The next one is made at once."""
    prefill, _ = await house.prefill(**PULL), await house.decode(**PULL, hold_deadline_s=0.05)
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    await prefill.writes.held()
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("decode-0", is_empty)
    assert await proofs(house, "decode-0", "fenced") == 1
    prefill.writes.let_go()
    await serves(house)


@pytest.mark.parametrize("policy", ["quarantine", "fence"])
async def test_the_reads_of_others_are_broken_only_by_policy(house: House, policy: str) -> None:
    told: dict[str, Any] = {"hold_deadline_s": 0.05, "quarantine_budget": 1.0, "fence_policy": policy}
    prefill, _ = await house.prefill(**PULL), await house.decode(**PULL, **told)
    prefill.writes.order(Hold(count=2))
    leaves, stays = (house.desk.ask(prompt_ids(14, seed), *BOTH, max_tokens=12) for seed in (1, 2))
    for _ in range(2):
        await prefill.writes._next(Held)
    house.desk.cancel(leaves, *BOTH)
    if policy == "fence":
        assert await stays.end("decode-0") == "endpoint_closed"
        assert await proofs(house, "decode-0", "fenced") == 2
        prefill.writes.let_go()
    else:
        await house.desk.shows("decode-0", lambda view: view.pages["quarantined"] == 4)
        prefill.writes.let_go()
        await answers(house, stays)
        assert await proofs(house, "decode-0", "drained") == 1
    await serves(house)


async def test_a_lost_stream_does_not_end_what_was_offered(house: House) -> None:
    """Decode reads on, and prefill hears of it on the next stream: the offer is said until it is answered."""
    prefill, _ = await pair(house)
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    await prefill.writes.held()
    for stream in list(prefill.worker.streams._streams.values()):
        stream.close()
    await house.desk.until(lambda: house.desk.peers["decode-0"] == ())
    prefill.writes.let_go()
    await answers(house, ask)
    await house.desk.paired("decode-0", "prefill-0")
    await serves(house)


async def test_a_flush_waits_for_what_is_lent(house: House) -> None:
    """Rule 16: a prefix that decode reads is in flight."""
    prefill, _ = await pair(house)
    await serves(house)
    house.desk.streams["decode-0"].send(Flush(1))
    await house.desk.until(lambda: house.desk.flushed.get("decode-0"))
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14, 9), *BOTH, max_tokens=12)
    await prefill.writes.held()
    house.desk.streams["prefill-0"].send(Flush(2))
    assert (await house.desk.snapshot("prefill-0")).pages["cached"] > 0
    assert "prefill-0" not in house.desk.flushed
    prefill.writes.let_go()
    await answers(house, ask)
    await house.desk.until(lambda: house.desk.flushed.get("prefill-0"))


async def test_a_drain_waits_until_decode_has_read(house: House) -> None:
    prefill, _ = await pair(house)
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    await prefill.writes.held()
    assert not prefill.worker.is_quiet()
    assert not await prefill.worker.drain(0.05)
    prefill.writes.let_go()
    assert await prefill.quiet()
    assert await ask.end("decode-0")
    await house.empty()
