"""What Quiesce claims, seen on real processes over real sockets: each test is a demonstration of its issue."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import PRODUCT, Cluster
from quiesce.lab.faults import Pace
from quiesce.lab.leak import AFTER, BEFORE, CANARY, FLAGS, run_arm, run_arms
from quiesce.lab.lending_race import FLAGS as LENDING_FLAGS
from quiesce.lab.lending_race import LendingReport, lending_race
from quiesce.lab.race import SAFE, UNSAFE, RaceReport, race
from quiesce.protocol.dispatch import PageRange, WorkerSnapshot
from tests.transport.installed import skip_unless_here

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = {
    "messages": [{"role": "user", "content": "Write the numbers from 1 to 15 in order."}],
    "temperature": 0,
    "max_tokens": 80,
}

INCIDENT_FLAGS = (
    *("--model", "tiny", "--context-length", "1048576", "--prefill-pool-tokens", "681280", "--allow-small-pool"),
    *("--decode-pool-tokens", "1048576"),
)
OVERSIZE = {"prompt": [65 + i % 26 for i in range(700_000)], "max_tokens": 4, "temperature": 0}
PAGE_BYTES = 16 * 256
"""A page of `tiny`; the small questions and the router's own probe have one page each."""

SMALL = {"prompt": "a small question", "max_tokens": 64, "temperature": 0, "ignore_eos": True}


async def counted(*flags: str) -> Answer:
    async with Cluster("--deterministic", *flags, program=PRODUCT) as cluster, Client(cluster.url) as client:
        return await client.ask(COUNT)


async def test_counting_is_correct_and_equal_to_one_process() -> None:
    """The real model counts from 1 to 15, streamed, with the same bytes whether or not the halves are apart."""
    apart, together = await counted(), await counted("--mode", "aggregated")
    assert (apart.text, apart.finish) == (", ".join(str(number) for number in range(1, 16)), "stop")
    assert apart.text == together.text


def is_untouched(view: WorkerSnapshot) -> bool:
    return view.pages["free"] + view.pages["cached"] == sum(view.pages.values()) and not view.rooms


async def test_oversize_prompt_is_rejected_before_anything_exists() -> None:
    """The incident's numbers: 700,000 tokens against a pool of 681,280 are a 400; no page moves, nobody notices."""
    async with Cluster(*INCIDENT_FLAGS) as cluster, Client(cluster.url) as client:
        alone = await client.ask(SMALL)
        oversize, beside = await asyncio.gather(client.ask(OVERSIZE), client.ask(SMALL))
        assert oversize.status == 400
        assert "context_length_exceeded" in oversize.error
        assert "681280" in oversize.error
        assert (beside.text, beside.error) == (alone.text, "")
        for worker in ("prefill-0", "decode-0"):
            await cluster.until(worker, is_untouched)
        moved = await client.metric("quiesce_transfer_bytes_total")
        assert moved == PAGE_BYTES * (await client.metric("quiesce_writes_total", outcome="landed"))


async def test_coverage_ends_a_stub_handoff_in_an_error() -> None:
    """With every door open and a prefill that reports pages it never wrote: no foreign text."""
    broken = {"QUIESCE_LAB": "no_admission,stub_handoff"}
    async with Cluster(*INCIDENT_FLAGS, environ=broken) as cluster, Client(cluster.url) as client:
        answer = await client.ask(OVERSIZE)
        assert answer.text == ""
        assert "coverage_mismatch" in answer.error
        assert (await client.ask(SMALL)).error == ""
        await cluster.until("decode-0", is_untouched)


# ---------------------------------------------------------------- the race


async def test_a_late_write_does_not_reach_a_victim() -> None:
    """The donor's pages are held until its write has landed and was acknowledged; the victim's bytes are its own."""
    report = await run_arm(AFTER)
    assert report.intact
    assert len(report.solo.text) > 100
    assert (report.drained, report.unsafe) == (1, 0)
    assert pages_of(report.donor_pages)
    assert not pages_of(report.donor_pages) & pages_of(report.victim_pages)


async def test_release_on_timeout_lets_the_late_write_in_and_its_stamp_ends_the_answer() -> None:
    """Two races between the same workers, whose start costs more than both."""
    unseen, stamped = await run_arms(BEFORE, CANARY)
    lost(unseen)
    seen(stamped)


def lost(report: RaceReport) -> None:
    """The same race is lost with `--unsafe-release-on-timeout`: this proves that the test above can fail."""
    assert report.unsafe == 1
    assert report.victim.error == ""
    assert report.victim.text != report.solo.text
    # What is said depends on the step at which the write lands; that it is of the donor does not.
    assert any(word in report.victim.text for word in ("patient", "Maria", "diagnosis", "diabetes"))
    assert pages_of(report.donor_pages) & pages_of(report.victim_pages)


def seen(report: RaceReport) -> None:
    """Even when protections are off, a late write that stamps its tags is seen at the next step."""
    assert report.unsafe == 1
    assert "context_changed" in report.victim.error
    assert len(report.victim.text) < len(report.solo.text)


ONE_SIDED = {"mooncake": "unguarded_mooncake", "nixl": ""}
"""Transports without a fence, and what lets a late write in: mooncake's receiver lends what is leased, nixl's all."""
DONOR = {"prompt": [65 + i % 26 for i in range(200)], "max_tokens": 32, "temperature": 0, "ignore_eos": True}
# Its answer is long enough that the late write lands in the middle of it.
VICTIM = {"prompt": [97 + i % 23 for i in range(170)], "max_tokens": 1600, "temperature": 0, "ignore_eos": True}


async def race_over(transport: str, *flags: str, held: bool, stamp: bool = False, broken: str = "") -> RaceReport:
    """`stamp`: the late write stamps its tags, as it does anyway where the pages are `held`."""
    skip_unless_here(transport)
    long = ("--model", "tiny", "--context-length", "2048", "--decode-pool-tokens", "4096")
    flags = (*FLAGS, *long, "--transport", transport, "--trust-network", *flags)
    async with Cluster(*flags, environ={"QUIESCE_LAB": broken}) as cluster:
        return await race(cluster, DONOR, VICTIM, held=held, stamp=stamp or held)


async def test_over_tcp_a_late_write_is_refused_although_its_pages_have_a_new_owner() -> None:
    """Decode stops placing: the donor's pages come back without waiting for its writer, to the victim itself."""
    report = await race_over("tcp", *SAFE, held=False, stamp=True)
    assert report.intact
    assert report.unsafe == 0
    assert pages_of(report.donor_pages) & pages_of(report.victim_pages)


async def test_over_tcp_the_late_write_gets_in_when_nobody_guards() -> None:
    """The same race with a receiver that places whatever comes: this proves that the test above can fail."""
    report = await race_over("tcp", *SAFE, held=False, stamp=True, broken="unguarded_tcp")
    assert report.victim.text != report.solo.text
    assert pages_of(report.donor_pages) & pages_of(report.victim_pages)


@pytest.mark.parametrize("transport", ONE_SIDED)
async def test_where_nothing_is_fenced_pages_are_held_until_their_write_has_ended(transport: str) -> None:
    report = await race_over(transport, *SAFE, held=True)
    assert report.intact
    assert (report.drained, report.unsafe) == (1, 0)
    assert pages_of(report.donor_pages)
    assert not pages_of(report.donor_pages) & pages_of(report.victim_pages)


@pytest.mark.parametrize("transport", ONE_SIDED)
async def test_where_nothing_is_fenced_a_timer_lets_the_late_write_in(transport: str) -> None:
    """This proves that the test above can fail."""
    report = await race_over(transport, *UNSAFE, held=False, broken=ONE_SIDED[transport])
    assert report.unsafe == 1
    assert report.victim.error == ""
    assert report.victim.text != report.solo.text
    assert pages_of(report.donor_pages) & pages_of(report.victim_pages)


STAGED = ("--landing", "staged")
STAGED_OVER = {"shm": False, "tcp": False, "mooncake": True, "nixl": True}
"""Whether the donor is still held there when the victim comes; a segment of its own, or a fence, ends that at once."""
NIGHTLY = pytest.mark.skipif("QUIESCE_NIGHTLY" not in os.environ, reason="make nightly: as over nixl, another library")


@pytest.mark.parametrize(
    "transport", [pytest.param(each, marks=NIGHTLY if each == "mooncake" else ()) for each in STAGED_OVER]
)
async def test_staged_the_victim_has_the_donors_pages_while_its_write_is_held(transport: str) -> None:
    """No ABORT_ACK was awaited for them: nothing remote can write to the pool."""
    report = await race_over(transport, *SAFE, *STAGED, held=STAGED_OVER[transport])
    assert report.intact
    assert report.unsafe == 0
    assert report.held == {"pages": 0, "landing": 13 if STAGED_OVER[transport] else 0}
    assert pages_of(report.donor_pages) & pages_of(report.victim_pages)


async def test_staged_no_late_write_reaches_the_pool_even_without_proof() -> None:
    """A timer gave its landing pages to the victim, as it would have given pages of the pool: nobody reads it."""
    report = await race_over("nixl", *UNSAFE, *STAGED, held=False)
    assert report.intact
    assert report.unsafe == 1
    assert pages_of(report.donor_pages) & pages_of(report.victim_pages)


# ---------------------------------------------------------------- the race with the roles exchanged: decode reads

SLOW = {"prompt": [65 + i % 26 for i in range(200)], "max_tokens": 48, "temperature": 0, "ignore_eos": True}
OTHER = {"prompt": [97 + i % 23 for i in range(200)], "max_tokens": 8, "temperature": 0, "ignore_eos": True}


async def lending(broken: str = "") -> LendingReport:
    flags = ("--model", "tiny", "--context-length", "2048", *LENDING_FLAGS)
    async with Cluster(*flags, environ={"QUIESCE_LAB": broken}) as cluster:
        return await lending_race(cluster, SLOW, OTHER)


async def test_what_is_lent_keeps_its_owner_until_decode_has_read() -> None:
    """A read that is served late finds what was lent, although another prompt was computed in between."""
    report = await lending()
    assert report.intact
    assert (report.other.error, pages_of(report.lent) != set()) == ("", True)


async def test_pages_that_come_back_when_they_are_offered_are_read_with_anothers_context() -> None:
    """This proves that the test above can fail: page tags are decode's own and say nothing of what was read."""
    report = await lending(broken="hasty")
    assert not report.lent
    assert (report.slow.error, report.other.error) == ("", "")
    assert report.slow.text != report.solo.text


def pages_of(ranges: tuple[PageRange, ...]) -> set[int]:
    return {page for each in ranges for page in range(each.first, each.last + 1)}


# ---------------------------------------------------------------- a storm of aborts

ABORTS = 132
COMMON: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


async def leave_after(client: Client, seed: int) -> None:
    """Ask something long and leave at a random moment."""
    draw = random.Random(seed)
    body = {"prompt": [draw.randrange(256) for _ in range(draw.randrange(400, 2000))], "max_tokens": 200, **COMMON}
    asking = asyncio.create_task(client.ask(body))
    await asyncio.wait([asking], timeout=draw.uniform(0.0, 1.5))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


PROOF_OVER = {
    "shm": "drained",
    "tcp": "fenced",
    "shm --landing staged": "fenced",
    "tcp --transfer pull": "drained",
}


@pytest.fixture(params=PROOF_OVER)
async def storm_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    flags = (
        *("--max-prefill-tokens", "64", "--transfer-batch-pages", "2", "--decode-pool-tokens", "16384"),
        *("--transport", *request.param.split()),
    )
    async with Cluster("--model", "tiny", "--context-length", "4096", *flags) as cluster:
        yield cluster


async def test_132_aborts_mid_transfer_give_everything_back(
    storm_cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """After 132 clients left at random moments every page and seat is back, each release with a proof."""
    usual = PROOF_OVER[request.node.callspec.params["storm_cluster"]]
    faults = await storm_cluster.faults("prefill-0")
    await faults.order(Pace(seed=7, most_s=0.02))
    async with Client(storm_cluster.url) as client:
        for wave in range(0, ABORTS, 22):
            await asyncio.gather(*(leave_after(client, wave + i) for i in range(22)))
        for worker in ("prefill-0", "decode-0"):
            await storm_cluster.until(worker, is_untouched, within_s=60)
        proofs = {
            proof: await client.metric("quiesce_releases_total", role="decode", proof=proof)
            for proof in ("drained", "never_armed", "fenced", "timeout")
        }
        assert proofs["timeout"] == 0
        assert proofs[usual] > 0
        assert await client.metric("quiesce_unsafe_releases_total") == 0
        assert await client.metric("quiesce_worker_restarts_total") == 0
        assert (await client.ask(SMALL)).error == ""
    faults.close()
