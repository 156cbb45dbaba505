"""Staged landing: a hold keeps no page of the pool, landing pages are bounded, and only a verified copy is read.

Over shm each hand-off has a segment (`test_segments`); here all land in one pool, as with every other transport.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from quiesce.errors import ConfigurationError
from quiesce.kv.storage import copy_pages
from quiesce.protocol.dispatch import Failed, WorkerSnapshot
from quiesce.protocol.hello import mismatch
from quiesce.transport.placement import Placement, Placing
from quiesce.transport.shm import SHM_CAPABILITIES
from quiesce.worker.decode import DecodeWorker
from quiesce.worker.greeting import hello_of
from quiesce.worker.landing_space import landing_pool

from .asking import BOTH, Ask
from .gate import Gate
from .house import House, Member
from .rig import PAGE, prompt_ids

STAGED: dict[str, Any] = {"landing": "staged"}
POOLED: dict[str, Any] = {**STAGED, "landing_space": landing_pool}
PAGE_BYTES = PAGE * 256
CONTEXT_PAGES = 256 // PAGE
COPY = "quiesce.worker.staged_landing.copy_pages"


async def pair(house: House, **changes: Any) -> tuple[Member[Any], Member[DecodeWorker]]:
    return await house.prefill(**STAGED, transfer_threads=6), await house.decode(**POOLED, **changes)


async def aborted_mid_write(house: House, prefill: Member[Any], n_tokens: int = 14) -> Ask:
    """Its client leaves while its first write is held."""
    ask = await house.held(prefill, prompt_ids(n_tokens, 9))
    house.desk.cancel(ask, *BOTH)
    return ask


def has_landing(**pages: int) -> Callable[[WorkerSnapshot], bool]:
    return lambda view: all(view.landing[state] == count for state, count in pages.items())


# ---------------------------------------------------------------- the way to a commit


@pytest.mark.parametrize("length", [1, PAGE, 5 * PAGE + 1])
async def test_an_answer_equals_the_solo_one(house: House, length: int) -> None:
    await pair(house)
    ask = house.desk.ask(prompt_ids(length), *BOTH, max_tokens=12)
    await ask.answers(12)
    await house.empty()
    view = await house.desk.snapshot("decode-0")
    assert view.landing == {"free": CONTEXT_PAGES, "reserved": 0, "held": 0, "quarantined": 0}


async def test_no_transport_is_told_of_the_pool(house: House) -> None:
    _, decode = await pair(house)
    parts = decode.worker.parts
    assert parts.landing is not None
    assert decode.worker.intake._transport._pool is parts.landing.where  # type: ignore[attr-defined]
    assert parts.pool.fd == -1


async def test_landing_pages_come_back_at_commit_not_when_the_answer_ends(house: House) -> None:
    await pair(house)
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=200)
    await ask.said(1)
    await house.desk.shows("decode-0", has_landing(free=CONTEXT_PAGES))
    assert await ask.end("decode-0") == "length"


async def test_a_second_turn_shares_what_was_copied(house: House) -> None:
    """Copied pages bear tags of the pool's own: whoever shares them finds what they expect."""
    await pair(house)
    first = house.desk.ask(prompt_ids(5 * PAGE), *BOTH, max_tokens=PAGE)
    await first.answers(PAGE)
    again = house.desk.ask(np.append(first.ids, first.tokens).astype(np.int32), *BOTH, max_tokens=6)
    await again.answers(6)
    assert await house.desk.metric("decode-0", "quiesce_prefix_hits_total") == 1
    assert await house.desk.metric("decode-0", "quiesce_tag_mismatches_total") == 0


class Flipped(Placement):
    """Every write lands with one wrong bit, and its tags: a torn one."""

    def stamp(self, placing: Placing) -> None:
        placing.target.page_view()[placing.write.target_pages[0], 0] ^= 1
        super().stamp(placing)


async def test_a_torn_write_is_caught_in_the_copy(house: House) -> None:
    await house.prefill(**STAGED, placement=Flipped())
    await house.decode(**POOLED)
    ask = house.desk.ask(prompt_ids(30), *BOTH, max_tokens=6)
    assert await ask.end("decode-0") == "digest_mismatch"
    assert ask.tokens == []
    await house.empty()


async def test_a_write_after_the_copy_changes_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is what was copied: in place, a late write could follow the check."""
    await pair(house)

    def copy_then_spoil(source: Any, target: Any, runs: Any) -> None:
        copy_pages(source, target, runs)
        source.kv[:] = np.float32(np.nan)

    monkeypatch.setattr(COPY, copy_then_spoil)
    await house.desk.ask(prompt_ids(30), *BOTH, max_tokens=6).answers(6)


# ---------------------------------------------------------------- holds


async def test_a_hold_keeps_no_page_of_the_pool(house: House) -> None:
    """A write is held after its request was aborted: the pool is as free as ever, and full answers go on in it."""
    prefill, decode = await pair(house)
    await aborted_mid_write(house, prefill)
    await house.desk.shows("decode-0", has_landing(held=4))
    view = await house.desk.snapshot("decode-0")
    assert view.pages["free"] == decode.worker.parts.pool.pages
    assert await house.desk.metric("decode-0", "quiesce_pages", 'state="held"') == 0
    assert await house.desk.metric("decode-0", "quiesce_landing_pages", 'state="held"') == 4
    whole = house.desk.ask(prompt_ids(200), *BOTH, max_tokens=56)  # every page of the pool
    await whole.answers(56)
    assert (await house.desk.snapshot("decode-0")).landing["held"] == 4
    prefill.writes.let_go()
    await house.desk.shows("decode-0", has_landing(free=CONTEXT_PAGES))
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_releases_total", 'proof="drained"') == 1


async def test_a_copy_at_work_keeps_its_pages_although_the_request_is_over(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every writer is drained, so the hold ends at once; the copy still reads and writes (rule 16)."""
    gate = Gate(copy_pages)
    monkeypatch.setattr(COPY, gate)
    _, decode = await pair(house)
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await gate.reached()
    house.desk.cancel(ask, "decode-0")
    view = await house.desk.shows("decode-0", lambda view: not view.rooms)
    assert (view.pages["reserved"], view.landing["held"]) == (4, 4)
    assert not decode.worker.is_quiet()
    gate.open()
    await house.desk.shows("decode-0", has_landing(free=CONTEXT_PAGES))
    await house.empty()
    assert ask.tokens == []


async def test_others_decode_while_a_copy_is_at_work(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair(house)
    running = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=100)
    await running.said(1)
    gate = Gate(copy_pages)
    monkeypatch.setattr(COPY, gate)
    copied = house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=6)
    await gate.reached()
    await running.answers(100)
    gate.open()
    await copied.answers(6)


async def test_without_proof_landing_pages_are_given_away_and_the_pool_is_not_reached(house: House) -> None:
    """--unsafe-release-on-timeout: the late write lands in landing pages that others had since, and in nothing else."""
    prefill, decode = await pair(house, hold_deadline_s=0.02, unsafe_release_on_timeout=True)
    await aborted_mid_write(house, prefill)
    await house.desk.shows("decode-0", lambda view: not view.rooms)
    victim = house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=100)
    await victim.said(1)
    before = decode.worker.parts.pool.kv[:3].copy()  # full ones: the fourth is where the answer goes
    prefill.writes.let_go()
    await prefill.writes.landed()
    assert (decode.worker.parts.pool.kv[:3] == before).all()
    await victim.answers(100)
    assert await house.desk.metric("decode-0", "quiesce_tag_mismatches_total") == 0


# ---------------------------------------------------------------- bounds


async def test_who_finds_no_landing_page_free_waits_in_turn(house: House) -> None:
    prefill, decode = await pair(house, landing_bytes=CONTEXT_PAGES * PAGE_BYTES)
    await aborted_mid_write(house, prefill, 200)
    await house.desk.shows("decode-0", has_landing(held=50))
    large = house.desk.ask(prompt_ids(100, 1), *BOTH, max_tokens=6)
    small = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=6)
    for ask in (large, small):
        await ask.accepted("decode-0")
    view = await house.desk.snapshot("decode-0")
    assert (view.waiting, view.landing["reserved"]) == (2, 0)  # the small one would fit, but is not the first
    assert view.pages["free"] == decode.worker.parts.pool.pages
    prefill.writes.let_go()
    for ask in (large, small):
        await ask.answers(6)
    await house.empty()


async def test_a_prompt_that_can_never_land_is_refused_before_anything_exists(house: House) -> None:
    await pair(house, landing_bytes=10 * PAGE_BYTES, allow_small_pool=True)
    assert house.desk.welcomes["decode-0"].landing_tokens == 10 * PAGE
    ask = house.desk.ask(prompt_ids(10 * PAGE + 1), "decode-0", max_tokens=6)
    assert await ask.end("decode-0") == "context_length_exceeded"
    failed = next(frame for _, frame in ask.heard if isinstance(frame, Failed))
    assert failed.rejected
    assert f"prompts of at most {10 * PAGE} tokens" in failed.failure.message
    await house.desk.ask(prompt_ids(10 * PAGE), *BOTH, max_tokens=6).answers(6)


async def test_quarantine_counts_against_what_it_lies_in(house: House) -> None:
    """A quarter of the landing pages in quarantine ends this life; of the pool it would be a sixteenth."""
    prefill, decode = await pair(house, hold_deadline_s=0.02, pool_tokens=1024)
    await aborted_mid_write(house, prefill, 17 * PAGE)
    await house.desk.shows("decode-0", has_landing(quarantined=17))
    assert "landing pages are quarantined" in decode.worker.load().reason
    assert decode.worker.worn_out.is_set()
    prefill.writes.let_go()
    await house.empty()


async def test_a_prompt_that_quarantine_leaves_no_landing_for_is_refused(house: House) -> None:
    prefill, _ = await pair(house, hold_deadline_s=0.02, quarantine_budget=1.0)
    await aborted_mid_write(house, prefill, 200)
    await house.desk.shows("decode-0", has_landing(quarantined=50))
    ask = house.desk.ask(prompt_ids(100), "decode-0", max_tokens=6)
    assert await ask.end("decode-0") == "pool_quarantined"
    await house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6).answers(6)
    prefill.writes.let_go()
    await house.empty()


async def test_landing_that_does_not_hold_the_context_is_refused_at_start(house: House) -> None:
    with pytest.raises(ConfigurationError, match="does not fit --landing-bytes"):
        await house.decode(**STAGED, landing_bytes=10 * PAGE_BYTES, peers=())


async def test_a_prefill_that_sends_no_digest_is_refused_at_hello(house: House) -> None:
    """Staged needs the digest: a prefill worker that was not told is not paired with."""
    members = await house.prefill(), await house.decode(**STAGED, peers=())
    hellos = [hello_of(member.worker.parts, SHM_CAPABILITIES) for member in members]
    said = mismatch(*hellos) or ""
    assert "prefill-0 has off, decode-0 has blake2b: give both the same --landing" in said


async def test_many_at_once_in_little_landing(house: House) -> None:
    """Twelve hand-offs through landing pages for one context: each says its own, and nobody waits for ever."""
    await pair(house, landing_bytes=CONTEXT_PAGES * PAGE_BYTES, pool_tokens=512)
    asks = [house.desk.ask(prompt_ids(60 + 13 * (i % 7), i), *BOTH, max_tokens=20) for i in range(12)]
    for ask in asks:
        await ask.answers(20)
    await house.empty()
