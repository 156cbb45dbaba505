"""A prefill and a decode worker together when something fails: one request ends, or one life, never more than that."""

from __future__ import annotations

import asyncio

import pytest

from quiesce.control.address import Address
from quiesce.ids import RequestId
from quiesce.worker.request import ROUTER_GONE

from .asking import BOTH
from .house import House
from .rig import prompt_ids


async def test_a_compute_error_fails_its_request_only(house: House) -> None:
    prefill = await house.prefill()
    await house.decode()
    engine = prefill.worker.parts.engine
    inner, broken = engine.prefill_chunk, [True]

    def once(*args: object, **kwargs: object) -> object:
        if broken.pop() if broken else False:
            raise ValueError("no such kernel")
        return inner(*args, **kwargs)  # type: ignore[arg-type]

    engine.prefill_chunk = once  # type: ignore[assignment]
    bad = house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=6)
    good = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=6)
    assert [await bad.end(worker) for worker in BOTH] == ["compute_failed"] * 2
    await good.answers(6)
    await house.empty()


async def test_a_request_whose_other_half_never_comes_ends(house: House) -> None:
    """Rule 17, on both sides."""
    await house.prefill(handoff_timeout_s=0.05)
    await house.decode(handoff_timeout_s=0.05)
    for worker, code in zip(BOTH, ("no_lease", "handoff_timeout"), strict=True):
        ask = house.desk.ask(prompt_ids(14), worker, max_tokens=6)
        assert await ask.end(worker) == code
    await house.empty()


async def test_a_lost_stream_aborts_on_the_next_one(house: House) -> None:
    """The stream ends while a write is under way: the same lives meet again, ABORT is said again and acked."""
    prefill = await house.prefill()
    await house.decode()
    ask = await house.held(prefill, prompt_ids(14))
    for stream in list(prefill.worker.streams._streams.values()):
        stream.close()
    assert await ask.end("decode-0") == "stream_lost"
    assert await ask.end("prefill-0") in {"stream_lost", "aborted"}
    await house.desk.until(lambda: house.desk.peers["decode-0"] == ())
    await house.desk.paired("decode-0", "prefill-0")
    prefill.writes.let_go()
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_releases_total", 'proof="drained"') == 1
    assert await house.desk.metric("decode-0", "quiesce_aborts_resent_total") >= 1
    after = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await after.answers(6)


async def test_quarantine_ends_when_the_write_settles(house: House) -> None:
    """The deadline frees nothing: pages leave circulation, and come back by a proof."""
    prefill = await house.prefill()
    decode = await house.decode(hold_deadline_s=0.02, quarantine_budget=1.0)
    ask = await house.held(prefill, prompt_ids(14))
    house.desk.cancel(ask, *BOTH)
    view = await house.desk.shows("decode-0", lambda view: view.pages["quarantined"] == 4)
    assert [room.state for room in view.rooms] == ["quarantined"]
    assert await decode.quiet()  # a quarantine keeps nobody from draining
    assert await house.desk.metric("decode-0", "quiesce_quarantined_attempts_total") == 1
    prefill.writes.let_go()
    await house.empty()
    assert await house.desk.metric("decode-0", "quiesce_releases_total", 'proof="drained"') == 1


async def test_a_write_of_unknown_fate_is_never_acked(house: House) -> None:
    """Past --call-deadline-s the attempt is poisoned: quarantine, although its bytes do land in the end (rule 5)."""
    prefill = await house.prefill(call_deadline_s=0.05)
    await house.decode(hold_deadline_s=0.02, quarantine_budget=1.0)
    prefill.writes.hold()
    ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    assert [await ask.end(worker) for worker in BOTH] == ["transfer_unknown"] * 2
    await house.desk.shows("decode-0", lambda view: view.pages["quarantined"] == 4)
    prefill.writes.let_go()
    await prefill.writes.landed()
    after = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=6)
    assert await after.end("decode-0") == "length"
    assert (await house.desk.snapshot("decode-0")).pages["quarantined"] == 4
    view = await house.desk.snapshot("prefill-0")
    assert (view.pages["quarantined"], [room.state for room in view.rooms]) == (4, ["quarantined"])
    assert await prefill.quiet()  # it waits for a fence, which a drain need not
    assert await house.desk.metric("prefill-0", "quiesce_poisoned_attempts_total") == 1


async def test_what_is_quarantined_does_not_wait_for_a_turn(house: House) -> None:
    """Else so many poisoned sources as --max-queue make prefill answer 429 for ever, while it says that it is ready."""
    prefill = await house.prefill(call_deadline_s=0.05, max_queue=1)
    await house.decode(hold_deadline_s=0.02, quarantine_budget=1.0)
    prefill.writes.hold()
    assert await house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6).end("prefill-0") == "transfer_unknown"
    prefill.writes.let_go()
    await prefill.writes.landed()
    assert prefill.worker.load().queued == 0
    assert await house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=6).end("decode-0") == "length"


async def test_a_worn_out_pool_asks_for_a_new_life(house: House) -> None:
    prefill = await house.prefill(call_deadline_s=0.05)
    decode = await house.decode(hold_deadline_s=0.02, quarantine_budget=0.01)
    prefill.writes.hold()
    house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await asyncio.wait_for(decode.worker.worn_out.wait(), 20)
    assert not decode.worker.load().ready


async def test_a_prefill_with_too_many_poisoned_sources_asks_for_a_new_life(house: House) -> None:
    """Else its pool shrinks to nothing while it says that it is ready."""
    prefill = await house.prefill(call_deadline_s=0.05, quarantine_budget=0.01)
    await house.decode()
    prefill.writes.hold()
    house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await asyncio.wait_for(prefill.worker.worn_out.wait(), 20)
    assert not prefill.worker.load().ready


async def test_a_broken_effect_ends_the_worker(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a step's effects were carried out: nothing here can be trusted, so the worker must not go on."""
    await house.prefill()
    decode = await house.decode()

    def broken(*_: object) -> None:
        raise ValueError("half way")

    monkeypatch.setattr(decode.worker, "attach", broken)
    house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    with pytest.raises(ValueError, match="half way"):
        await asyncio.wait_for(decode.worker.broken, 20)
    before = decode.worker.rooms()[0].state
    decode.worker.abandon(RequestId(decode.worker.rooms()[0].request), ROUTER_GONE)
    assert decode.worker.rooms()[0].state == before  # and it hears nothing more


async def test_a_wrongly_named_peer_is_refused(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Else requests of one prefill worker would wait for destinations that were told to another; said once."""
    await house.prefill("prefill-1")
    path = house.members["prefill-1"].path
    (path.parent / "prefill-0.sock").symlink_to(path)
    with caplog.at_level("INFO", "quiesce.worker"):
        decode = await house.decode(peers=("prefill-0",))
        streams = decode.worker.streams
        rounds = asyncio.Event()
        inner, seen = streams._try, []

        async def counted(at: Address) -> tuple[bool, str]:
            seen.append(at)
            if len(seen) == 3:
                rounds.set()
            return await inner(at)

        streams._try = counted  # type: ignore[method-assign,assignment]
        await asyncio.wait_for(rounds.wait(), 20)
    assert house.desk.peers["decode-0"] == ()
    told = [record for record in caplog.records if "streams" in record.name]
    assert sorted((record.levelname, record.getMessage()) for record in told) == [
        ("WARNING", "a decode worker was not joined"),
        ("WARNING", "a prefill worker cannot be used"),
    ]
