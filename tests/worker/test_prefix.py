"""The prefix cache through workers: the same answers with less work, and nothing shared that must not be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quiesce.lab.faults import Step
from quiesce.protocol.dispatch import Flush, Sampling, Tokens

from .asking import BOTH, Ask
from .gate import Gate
from .house import House
from .rig import PAGE, alone, prompt_ids

ONE = ("aggregated-0",)
PROMPT = 5 * PAGE + 2


async def open_pair(house: House, **changes: Any) -> None:
    await house.prefill(**changes)
    await house.decode(**changes)


async def open_pulling(house: House, **changes: Any) -> None:
    """A pair whose decode reads."""
    await open_pair(house, transport="tcp", transfer="pull", **changes)


async def open_one(house: House, **changes: Any) -> None:
    await house.aggregated(**changes)


Opening = Callable[..., Awaitable[None]]
MODES = pytest.mark.parametrize(
    ("workers", "open_workers"),
    [(BOTH, open_pair), (BOTH, open_pulling), (ONE, open_one)],
    ids=["pair", "pulling", "aggregated"],
)


def cached_of(ask: Ask) -> int:
    return max(frame.cached_tokens for _, frame in ask.heard if isinstance(frame, Tokens))


async def answered(house: House, ask: Ask, worker: str, max_tokens: int = 12) -> int:
    """The answer equals the solo one; how much of its prompt was cached."""
    assert await ask.end(worker) == "length"
    assert ask.tokens == alone(ask.ids, max_tokens)
    for name in house.members:  # what prefill has to say comes on another connection
        await house.desk.shows(name, lambda view: not view.rooms)
    return cached_of(ask)


@MODES
@pytest.mark.parametrize("length", [1, PAGE, PAGE + 1, 5 * PAGE, PROMPT])
async def test_the_second_answer_is_the_first_ones_with_whole_pages_cached(
    house: House, workers: tuple[str, ...], open_workers: Opening, length: int
) -> None:
    """At least one token is computed, for its logits; the same counts in both modes."""
    await open_workers(house)
    counts = [await answered(house, house.desk.ask(prompt_ids(length), *workers, max_tokens=12), workers[-1])]
    counts += [await answered(house, house.desk.ask(prompt_ids(length), *workers, max_tokens=12), workers[-1])]
    assert counts == [0, (length - 1) // PAGE * PAGE]
    await house.empty()


@MODES
async def test_prompts_that_begin_alike_share_what_is_alike(
    house: House, workers: tuple[str, ...], open_workers: Opening
) -> None:
    await open_workers(house)
    first, second = prompt_ids(PROMPT), prompt_ids(PROMPT)
    second[3 * PAGE + 1] ^= 1
    counts = [
        await answered(house, house.desk.ask(ids, *workers, max_tokens=12), workers[-1]) for ids in (first, second)
    ]
    assert counts == [0, 3 * PAGE]


@MODES
async def test_tenant_b_never_hits_what_tenant_a_warmed(
    house: House, workers: tuple[str, ...], open_workers: Opening
) -> None:
    await open_workers(house)
    counts = [
        await answered(house, house.desk.ask(prompt_ids(PROMPT), *workers, salt=salt, max_tokens=12), workers[-1])
        for salt in ("tenant-a", "tenant-b", "tenant-a", "")
    ]
    assert counts == [0, 0, 5 * PAGE, 0]


@MODES
async def test_a_small_pool_evicts_and_goes_on(house: House, workers: tuple[str, ...], open_workers: Opening) -> None:
    """More prompts than the pool could keep: none is refused, each answer is its own."""
    await open_workers(house, pool_tokens=96, context_length=96)
    asks = [house.desk.ask(prompt_ids(20 + 7 * (i % 4), i % 6), *workers, max_tokens=12) for i in range(18)]
    for ask in asks:
        await answered(house, ask, workers[-1])
    await house.empty()
    assert await house.desk.metric(workers[0], "quiesce_prefix_evicted_pages_total") > 0


async def test_decode_asks_for_the_suffix_it_lacks(house: House) -> None:
    await open_pair(house)
    await answered(house, house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12), "decode-0")
    sent_bytes = await house.desk.metric("prefill-0", "quiesce_transfer_bytes_total")
    await answered(house, house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12), "decode-0")
    again_bytes = await house.desk.metric("prefill-0", "quiesce_transfer_bytes_total") - sent_bytes
    assert again_bytes * 6 == sent_bytes
    assert await house.desk.metric("decode-0", "quiesce_prefix_tokens_total") == 5 * PAGE


@pytest.mark.parametrize("which", BOTH)
async def test_one_side_may_have_forgotten(house: House, which: str) -> None:
    """Decode holds what prefill must compute, or prefill has what decode lacks: the pages that travel are right."""
    await open_pair(house)
    for seed in (1, 1, 2, 1):
        ask = house.desk.ask(prompt_ids(PROMPT, seed), *BOTH, max_tokens=12)
        await answered(house, ask, "decode-0")
        await flush(house, which)
    await house.empty()


@pytest.mark.parametrize("digest", ["off", "blake2b"])
async def test_a_suffix_verifies_like_a_whole_prompt(house: House, digest: str) -> None:
    await house.prefill(payload_digest=digest, transfer_batch_pages=1)
    await house.decode(payload_digest=digest)
    for length in (2 * PAGE, PROMPT, PROMPT + PAGE):
        await answered(house, house.desk.ask(prompt_ids(PROMPT + PAGE)[:length], *BOTH, max_tokens=12), "decode-0")


async def flush(house: House, worker: str) -> None:
    """Flush, and wait until it is done."""
    heard = house.desk.flushed
    before = heard.get(worker, 0)
    house.desk.streams[worker].send(Flush(1))
    await house.desk.until(lambda: heard.get(worker, 0) > before)


@MODES
async def test_flush_waits_for_whoever_reads(house: House, workers: tuple[str, ...], open_workers: Opening) -> None:
    await open_workers(house, pool_tokens=1024)  # the second does not wait for the first one's room
    worker = workers[-1]
    running = house.desk.ask(prompt_ids(PROMPT), *workers, max_tokens=200)
    await running.said(3)
    house.desk.streams[worker].send(Flush(1))
    view = await house.desk.snapshot(worker)
    assert (view.pages["cached"], house.desk.flushed) == (5, {})
    second = house.desk.ask(prompt_ids(PROMPT), *workers, max_tokens=12)
    assert await second.end(worker) == "length"
    assert second.tokens == alone(second.ids, 12)
    assert house.desk.flushed == {}
    house.desk.cancel(running, *workers)
    await house.desk.until(lambda: house.desk.flushed)
    assert (await house.desk.snapshot(worker)).pages["cached"] == 0


# ---------------------------------------------------------------- rule 12: what failed is not in it


@pytest.mark.parametrize("who", [BOTH, ("prefill-0",), ("decode-0",)], ids=["both", "prefill", "decode"])
@pytest.mark.parametrize("step", list(Step))
async def test_an_aborted_hand_off_leaves_nothing_behind(house: House, step: Step, who: tuple[str, ...]) -> None:
    prefill = await house.prefill()
    await house.decode()
    prefill.writes.hold(step)
    ask = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12)
    await prefill.writes.held()
    house.desk.cancel(ask, *who)
    await house.desk.shows("decode-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    await house.desk.shows("prefill-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    prefill.writes.let_go()
    await house.empty()
    for name in BOTH:
        assert (await house.desk.snapshot(name)).pages["cached"] == 0


async def test_what_did_not_verify_is_not_shared_at_decode(house: House) -> None:
    """Pages without tags are refused. Prefill had said DONE by then, and may share what it computed itself."""
    prefill = await house.prefill()
    await house.decode()
    prefill.writes.hold(Step.STAMP)
    ask = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12)
    await prefill.writes.held()
    prefill.writes.let_go(stamp=False)
    assert await ask.end("decode-0") == "coverage_mismatch"
    await house.empty()
    assert (await house.desk.snapshot("decode-0")).pages["cached"] == 0


async def test_an_aborted_prompt_in_one_process_leaves_nothing_behind(house: House) -> None:
    member = await house.aggregated()
    gate = Gate.on(member.worker.parts.engine, "prefill_chunk")
    ask = house.desk.ask(prompt_ids(PROMPT), *ONE, max_tokens=12)
    await gate.reached()
    house.desk.cancel(ask, *ONE)
    gate.open()
    await house.empty()
    assert (await house.desk.snapshot(ONE[0])).pages["cached"] == 0


async def test_a_source_that_is_still_read_is_not_evicted(house: House) -> None:
    """Rule 13 across requests: a cached page that an outstanding write reads stays, however many pages others want."""
    prefill = await house.prefill(pool_tokens=64, context_length=64)
    await house.decode()
    warm = house.desk.ask(prompt_ids(40), *BOTH, max_tokens=12)
    await answered(house, warm, "decode-0")
    await flush(house, "decode-0")  # so that everything is written again
    second = await house.held(prefill, prompt_ids(40), max_tokens=12)
    source = prefill.worker.jobs[second.request].prompt
    assert source is not None
    shared = source.pages[: source.cached_pages]
    before = prefill.worker.parts.pool.kv[shared].copy()
    greedy = house.desk.ask(prompt_ids(40, 2), *BOTH, max_tokens=12)
    await greedy.accepted("prefill-0")
    await house.desk.shows("prefill-0", lambda view: [room.state for room in view.rooms][-1:] == ["waiting"])
    assert not (prefill.worker.parts.allocator.tag_of(shared) == 0).any()
    assert (prefill.worker.parts.pool.kv[shared] == before).all()
    prefill.writes.let_go()
    for ask in (second, greedy):
        await answered(house, ask, "decode-0")
    await house.empty()


async def test_a_foreign_write_into_a_shared_page_ends_everybody_who_reads_it(house: House) -> None:
    """All answers on it end, none goes on with it, and nobody meets it again."""
    await house.prefill()
    decode = await house.decode(quarantine_budget=1.0)
    first, second = (house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=200) for _ in range(2))
    await asyncio.gather(first.said(2), second.said(2))
    third = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=200)
    await third.said(2)
    shared = decode.worker.handoffs[max(decode.worker.handoffs)].reader.pages
    assert len(shared) == 5
    decode.worker.parts.pool.tags[shared[1]] = 1
    assert await third.end("decode-0") == "context_changed"
    again = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12)
    await answered_among_others(again)
    for ask in (first, second):
        house.desk.cancel(ask, *BOTH)
    view = await house.desk.shows("decode-0", lambda view: not view.running)
    assert view.pages["quarantined"] >= 5


async def answered_among_others(ask: Ask) -> None:
    await ask.answers(12)


async def test_a_page_that_changed_while_nobody_read_it_is_not_shared(house: House) -> None:
    await house.prefill()
    decode = await house.decode(quarantine_budget=1.0)
    await answered(house, house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12), "decode-0")
    cached = decode.worker.parts.prefixes.read("", prompt_ids(PROMPT).astype("<u4").tobytes())
    decode.worker.parts.pool.tags[cached.pages[2]] = 1
    cached.leave()
    await answered(house, house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12), "decode-0")
    assert await house.desk.metric("decode-0", "quiesce_tag_mismatches_total", 'where="share"') == 1
    view = await house.desk.snapshot("decode-0")
    assert view.pages["quarantined"] == 5


async def test_off_keeps_nothing(house: House) -> None:
    await house.prefill(prefix_cache="off")
    await house.decode(prefix_cache="off")
    for _ in range(2):
        assert await answered(house, house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12), "decode-0") == 0
    for name in BOTH:
        assert (await house.desk.snapshot(name)).pages["cached"] == 0


@MODES
@pytest.mark.parametrize("deterministic", [True, False], ids=["to the bit", "default"])
async def test_a_warm_answer_is_the_cold_one(
    house: House, workers: tuple[str, ...], open_workers: Opening, deterministic: bool
) -> None:
    """Log probabilities to the bit with --deterministic; without it other chunks round differently, and the greedy
    tokens are compared.
    """
    await open_workers(house, deterministic=deterministic, max_prefill_tokens=12)
    sampling = Sampling(temperature=0.0, logprobs=2)
    for seed in range(3):
        told = []
        for _ in range(2):
            ask = house.desk.ask(prompt_ids(45, seed), *workers, sampling=sampling, max_tokens=8)
            assert await ask.end(workers[-1]) == "length"
            told.append([(f.token_ids, f.logprobs) for _, f in ask.heard if isinstance(f, Tokens)])
        assert [ids for ids, _ in told[0]] == [ids for ids, _ in told[1]]
        assert told[0] == told[1] or not deterministic


async def test_a_source_of_unknown_fate_is_shared_no_more(house: House) -> None:
    """A write that reads cached pages, and nobody knows how long: they leave the tree, and stay where they are."""
    prefill = await house.prefill(call_deadline_s=0.2, quarantine_budget=1.0)
    await house.decode(quarantine_budget=1.0)
    await answered(house, house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12), "decode-0")
    await flush(house, "decode-0")
    prefill.writes.hold()
    poisoned = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12)
    assert await poisoned.end("decode-0") == "transfer_unknown"
    view = await house.desk.shows("prefill-0", lambda view: view.pages["quarantined"] > 0)
    assert (view.pages["quarantined"], view.pages["cached"]) == (6, 0)
    prefill.writes.let_go()
    again = house.desk.ask(prompt_ids(PROMPT), *BOTH, max_tokens=12)
    await again.answers(12)
    assert cached_of(again) == 0
