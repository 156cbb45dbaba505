"""Staged landing over shm: each hand-off lands in a segment of its own, and a late writer writes into an orphan."""

from __future__ import annotations

import pytest

from quiesce.errors import PeerUnusable
from quiesce.kv.storage import copy_pages
from quiesce.transport.shm_segments import SegmentReceiver

from .asking import BOTH
from .gate import Gate
from .house import House
from .rig import PAGE, prompt_ids
from .test_staged import CONTEXT_PAGES, COPY, PAGE_BYTES, STAGED, aborted_mid_write, has_landing


def segments_of(house: House) -> SegmentReceiver:
    transport = house.members["decode-0"].worker.parts.landing.where
    assert isinstance(transport, SegmentReceiver)
    return transport


@pytest.mark.parametrize("length", [1, PAGE, 5 * PAGE + 1])
async def test_an_answer_equals_the_solo_one_and_leaves_no_segment(house: House, length: int) -> None:
    await house.prefill(**STAGED, transfer_batch_pages=1)
    await house.decode(**STAGED)
    ask = house.desk.ask(prompt_ids(length), *BOTH, max_tokens=12)
    await ask.answers(12)
    await house.empty()
    assert not segments_of(house)._lent
    assert not segments_of(house)._over


async def test_an_abort_needs_no_acknowledgement_and_no_death(house: House) -> None:
    """The writer is alive and its write held: what it will write belongs to nobody, so all comes back at once."""
    prefill = await house.prefill(**STAGED)
    decode = await house.decode(**STAGED)
    ask = await aborted_mid_write(house, prefill)
    view = await house.desk.shows("decode-0", lambda view: not view.rooms)
    assert (view.pages["free"], view.landing["free"]) == (decode.worker.parts.pool.pages, CONTEXT_PAGES)
    assert await house.desk.metric("decode-0", "quiesce_releases_total", 'proof="fenced"') == 1
    prefill.writes.let_go()
    await house.empty()
    assert ask.tokens == []


async def test_a_late_write_changes_nothing_that_anybody_reads(house: House) -> None:
    """The victim has the donor's pages of the pool while the donor's write lands: in an orphan."""
    prefill = await house.prefill(**STAGED)
    decode = await house.decode(**STAGED)
    await aborted_mid_write(house, prefill)
    await house.desk.shows("decode-0", lambda view: not view.rooms)
    victim = house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=100)
    await victim.said(1)
    before = decode.worker.parts.pool.kv[:3].copy()
    prefill.writes.let_go()
    await prefill.writes.landed()
    assert (decode.worker.parts.pool.kv[:3] == before).all()
    await victim.answers(100)
    await house.empty()


async def test_segments_are_bounded_as_pages_are(house: House) -> None:
    """Who finds no room waits for a segment to come back."""
    await house.prefill(**STAGED)
    await house.decode(**STAGED, landing_bytes=CONTEXT_PAGES * PAGE_BYTES, pool_tokens=512)
    asks = [house.desk.ask(prompt_ids(60 + 13 * (i % 7), i), *BOTH, max_tokens=20) for i in range(12)]
    for ask in asks:
        await ask.answers(20)
    await house.empty()


async def test_a_copy_at_work_keeps_its_segment(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(copy_pages)
    monkeypatch.setattr(COPY, gate)
    await house.prefill(**STAGED)
    await house.decode(**STAGED)
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await gate.reached()
    house.desk.cancel(ask, "decode-0")
    await house.desk.shows("decode-0", lambda view: not view.rooms)
    assert len(segments_of(house)._over) == 1
    gate.open()
    await house.desk.shows("decode-0", has_landing(free=CONTEXT_PAGES))
    await house.empty()


async def test_a_prefill_that_takes_no_segment_fails_its_requests_alone(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was published and everything came back."""
    await house.prefill(**STAGED)
    await house.decode(**STAGED)

    def nobody_listens(*asked: object) -> None:
        raise PeerUnusable("full", took_effect=False)

    monkeypatch.setattr(segments_of(house), "lend", nobody_listens)
    refused = house.desk.ask(prompt_ids(14), "decode-0", max_tokens=6)
    assert await refused.end("decode-0") == "pair_unavailable"
    monkeypatch.undo()
    await house.empty()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await ask.answers(6)
