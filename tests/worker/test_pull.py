"""Prefill and decode where decode reads (`--transfer pull`): answers as ever, and no page back without a proof."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import pack_runs
from quiesce.lab.faults import FaultyTcpPuller, Held, Hold
from quiesce.lab.read_faults import FaultyTcpLender
from quiesce.protocol.dispatch import Flush
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion
from quiesce.worker.breaches import MOST_BREACHES
from quiesce.worker.prefill import PrefillWorker

from .asking import BOTH, Ask, is_empty
from .house import House, Member
from .rig import prompt_ids

PULL: dict[str, Any] = {"transport": "tcp", "transfer": "pull"}


async def pair(house: House, **changes: Any) -> tuple[Member[PrefillWorker], Member[Any]]:
    return await house.prefill(**PULL, **changes), await house.decode(**PULL, **changes)


async def answers(ask: Ask) -> None:
    await ask.answers(12)
    assert await ask.end("prefill-0") == "handed_off"


async def proofs(house: House, worker: str, proof: str) -> float:
    return await house.desk.metric(worker, "quiesce_releases_total", f'proof="{proof}"')


@pytest.mark.parametrize("length", [1, 4, 14, 39])
@pytest.mark.parametrize("digest", ["off", "blake2b"])
async def test_an_answer_is_that_of_one_process(house: House, length: int, digest: str) -> None:
    await pair(house, payload_digest=digest, transfer_batch_pages=3)
    await answers(house.desk.ask(prompt_ids(length), *BOTH, max_tokens=12))
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_reads_total", 'outcome="landed"') == -(-length // 12)


async def test_what_is_lent_is_shown(house: House) -> None:
    prefill, decode = await pair(house)
    ask = await house.held(prefill, prompt_ids(14), max_tokens=12)
    lent, reading = [(await house.desk.snapshot(worker)).rooms for worker in BOTH]
    assert [(room.state, room.pages) for room in (*lent, *reading)] == [("lent", 4), ("reading", 4)]
    assert lent[0].awaiting == (str(Peer(0, decode.worker.parts.incarnation)),)
    assert prefill.worker.load().queued == 0
    prefill.writes.let_go()
    await answers(ask)
    await house.empty()


async def test_a_client_that_leaves_before_its_read_was_served(house: House) -> None:
    """Prefill closes the window, which frees its own pages; decode's await the end of the read."""
    _, decode = await pair(house)
    ask = await house.held(decode, prompt_ids(14), max_tokens=12)
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("prefill-0", is_empty)
    view = await house.desk.snapshot("decode-0")
    assert ([room.state for room in view.rooms], view.pages["held"]) == (["holding"], 4)
    decode.writes.let_go()
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_reads_total", 'outcome="failed_quiesced"') == 1
    assert (await proofs(house, "decode-0", "drained"), await proofs(house, "prefill-0", "fenced")) == (1, 1)
    await house.serves()


async def test_a_client_that_leaves_while_its_read_is_served(house: House) -> None:
    prefill, _ = await pair(house)
    ask = await house.held(prefill, prompt_ids(14), max_tokens=12)
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("decode-0", lambda view: [room.state for room in view.rooms] == ["holding"])
    prefill.writes.let_go()
    await house.empty()
    assert await proofs(house, "decode-0", "drained") == 1
    await house.serves()


async def test_bytes_that_are_not_what_was_offered_are_caught_by_the_digest(house: House) -> None:
    prefill, _ = await pair(house, payload_digest="blake2b")
    ask = await house.held(prefill, prompt_ids(14), max_tokens=12)
    pool = prefill.worker.parts.pool
    pool.kv[:] = np.float32(7.0)
    prefill.writes.let_go()
    assert await ask.end("decode-0") == "digest_mismatch"
    await house.empty()
    assert (await house.desk.snapshot("decode-0")).pages["cached"] == 0


async def test_a_hold_that_nobody_ends_costs_decode_its_endpoint_if_nobody_else_reads(house: House) -> None:
    """Closed and joined, nothing of the read lands any more: a proof of its own. The next one is made at once."""
    prefill, _ = await house.prefill(**PULL), await house.decode(**PULL, hold_deadline_s=0.05)
    ask = await house.held(prefill, prompt_ids(14), max_tokens=12)
    house.desk.cancel(ask, *BOTH)
    await house.desk.shows("decode-0", is_empty)
    assert await proofs(house, "decode-0", "fenced") == 1
    prefill.writes.let_go()
    await house.serves()


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
        await answers(stays)
        assert await proofs(house, "decode-0", "drained") == 1
    await house.serves()


async def test_a_lost_stream_does_not_end_what_was_offered(house: House) -> None:
    """Decode reads on, and prefill hears of it on the next stream: the offer is said until it is answered."""
    prefill, _ = await pair(house)
    ask = await house.held(prefill, prompt_ids(14), max_tokens=12)
    for stream in list(prefill.worker.streams._streams.values()):
        stream.close()
    await house.desk.until(lambda: house.desk.peers["decode-0"] == ())
    prefill.writes.let_go()
    await answers(ask)
    await house.desk.paired("decode-0", "prefill-0")
    await house.serves()


async def test_a_flush_waits_for_what_is_lent(house: House) -> None:
    """Rule 16: a prefix that decode reads is in flight."""
    prefill, _ = await pair(house)
    await answers(house.desk.ask(prompt_ids(14, 9), *BOTH, max_tokens=12))
    await house.empty()
    house.desk.streams["decode-0"].send(Flush(1))
    await house.desk.until(lambda: house.desk.flushed.get("decode-0"))
    ask = await house.held(prefill, prompt_ids(14, 9), max_tokens=12)
    house.desk.streams["prefill-0"].send(Flush(2))
    assert (await house.desk.snapshot("prefill-0")).pages["cached"] > 0
    assert "prefill-0" not in house.desk.flushed
    prefill.writes.let_go()
    await answers(ask)
    await house.desk.until(lambda: house.desk.flushed.get("prefill-0"))


async def test_a_drain_waits_until_decode_has_read(house: House) -> None:
    prefill, _ = await pair(house)
    ask = await house.held(prefill, prompt_ids(14), max_tokens=12)
    assert not prefill.worker.is_quiet()
    assert not await prefill.worker.drain(0.05)
    prefill.writes.let_go()
    assert await prefill.quiet()
    assert await ask.end("decode-0")
    await house.empty()


class Unrevocable(FaultyTcpLender):
    """Cannot close a window, as libraries whose readers ask nobody."""

    def revoke(self, tag: PageTag) -> bool:
        return False


async def test_what_decode_does_not_return_leaves_circulation_until_it_does(house: House) -> None:
    """No clock frees it; the deadline says that it is missing."""
    prefill = await house.prefill(**PULL, lender=Unrevocable, hold_deadline_s=0.02, quarantine_budget=0.01)
    decode = await house.decode(**PULL)
    ask = await house.held(decode, prompt_ids(14), max_tokens=12)
    house.desk.cancel(ask, *BOTH)
    view = await house.desk.shows("prefill-0", lambda view: view.pages["quarantined"] == 4)
    assert [room.state for room in view.rooms] == ["quarantined"]
    assert prefill.worker.worn_out.is_set()
    assert await house.desk.metric("prefill-0", "quiesce_quarantined_attempts_total") == 1
    decode.writes.let_go()
    await house.empty()
    assert await proofs(house, "prefill-0", "drained") == 1


class Unsure(FaultyTcpPuller):
    """Says of its first read that nobody knows how it ended."""

    said = False

    def completions(self) -> list[Completion]:
        ended = super().completions()
        if ended and not self.said:
            self.said = True
            ended[0] = replace(ended[0], outcome=Outcome.FAILED_IN_FLIGHT)
        return ended


async def test_a_read_of_unknown_fate_is_never_acked(house: House) -> None:
    """Its pages come back when the endpoint is closed (rule 5), and prefill's by FENCED."""
    await house.prefill(**PULL, lender=Unrevocable)
    await house.decode(**PULL, puller=Unsure, hold_deadline_s=0.02)
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    assert await ask.end("decode-0") == "transfer_unknown"
    await house.empty()
    assert (await proofs(house, "decode-0", "fenced"), await proofs(house, "prefill-0", "fenced")) == (1, 1)
    assert await house.desk.metric("decode-0", "quiesce_poisoned_attempts_total") == 1


@pytest.mark.parametrize("pages", [[70, 71, 72, 73], [0, 1, 2]])
async def test_an_offer_of_pages_that_cannot_be_is_read_by_nobody(
    house: House, pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of prefill's pool, or too few: nothing is launched."""
    runs = pack_runs(np.array(pages, np.int32))
    monkeypatch.setattr("quiesce.worker.pull_outlet.pack_runs", lambda _: runs)
    await pair(house)
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12)
    assert await ask.end("decode-0") == "transfer_failed"
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_reads_total") == 0
    assert await house.desk.metric("decode-0", "quiesce_protocol_breaches_total") == 1


@pytest.mark.parametrize("runs", [b"cut in the middle", pack_runs(np.array([70, 71, 72, 73], np.int32))])
async def test_who_goes_on_offering_nonsense_is_refused_and_both_sides_say_why(
    house: House, runs: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not joined and disconnected for ever: the first kind is no frame at all, the second one cannot be read."""
    monkeypatch.setattr("quiesce.worker.pull_outlet.pack_runs", lambda _: runs)
    await pair(house)
    for _ in range(MOST_BREACHES):  # fewer prompts may do: an offer is sent again on a new stream
        if await house.desk.until(lambda: refusal(house) or "prefill-0" in house.desk.peers["decode-0"]) is not True:
            break
        await house.desk.ask(prompt_ids(14), *BOTH, max_tokens=12).end("decode-0")
    why = await house.desk.until(lambda: refusal(house))
    assert why.startswith("this life broke the protocol 3 times and is refused until it is started anew: ")
    assert house.desk.peers["decode-0"] == ()
    assert (await house.desk.snapshot("decode-0")).troubles == (("prefill-0", why),)
    assert await house.desk.metric("decode-0", "quiesce_protocol_breaches_total") == 3
    told = [vars(record).get("ids", {}).get("reason") for record in caplog.records if "not joined" in record.message]
    assert why in told


def refusal(house: House) -> str:
    return next((why for _, why in house.desk.troubles["decode-0"] if "is refused until" in why), "")
