"""Decode's executor: every effect does what it says to pages, seats, streams and clocks, and no more."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from quiesce.errors import InvariantBroken, PeerUnusable
from quiesce.ids import Attempt, Incarnation, PageTag, Peer, RequestId
from quiesce.integrity.coverage import metadata_words
from quiesce.integrity.digests import payload_digest
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.kv.layout import Layout
from quiesce.kv.prefix_cache import PrefixCache
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.messages import Abort, Committed, Envelope, Failure, Fault, OpenAttempts
from quiesce.protocol.receiver_io import (
    Attach,
    Cache,
    FenceProved,
    Hold,
    Ignored,
    Minted,
    Proof,
    Quarantine,
    ReceiverEffect,
    Release,
    RequestFailed,
    Send,
    StartTimer,
    StopTimers,
    Timer,
    TimerFired,
    TryFence,
    Verified,
    Verify,
)
from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.contract import OnDead
from quiesce.worker.handoff import Handoff
from quiesce.worker.intake import DecodeInput
from quiesce.worker.landing import DirectLanding
from quiesce.worker.receiver_executor import ReceiverExecutor
from quiesce.worker.sequence import Generation

from .requests import request, settings
from .rig import GREEDY, PAGE, prompt_ids

ONE = Attempt(1)
PEER = Peer(0, Incarnation("b" * 32))
ME = Peer(0, Incarnation("a" * 32))
FAILURE = Failure("stream_lost", "It ended.", Fault.PREFILL)
VOCAB = 259
PROMPT = 2 * PAGE + 1


class FakeReceiver:
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.dead: set[Peer] = set()
        self.killed: list[Peer] = []
        self.may_kill = True
        self.can_revoke = False
        self.revoked: list[int] = []
        self.disarmed: list[int] = []

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        return b"", []

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None: ...

    def revoke(self, tag: PageTag) -> bool:
        self.revoked.append(tag)
        return self.can_revoke

    def disarm(self, tag: PageTag) -> None:
        self.disarmed.append(tag)

    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None: ...

    def kill(self, peer: Peer) -> None:
        if not self.may_kill:
            raise PeerUnusable("not permitted")
        self.killed.append(peer)

    def is_dead(self, peer: Peer) -> bool:
        return peer in self.dead

    def close(self) -> None: ...


class Desk:
    """The worker as its executor sees it; `did` has what it was told, in order."""

    def __init__(self, **changes: Any) -> None:
        layout = Layout(layers=1, kv_heads=1, head_dim=4, page_size=PAGE)
        self.pool = Pool.private(layout, 8, 4)
        self.allocator = PageAllocator(8, PageTag(100))
        self.telemetry = Telemetry("decode", "decode-0")
        self.transport = FakeReceiver()
        self.landing = DirectLanding(self.pool, self.allocator)
        self.handoffs: dict[Attempt, Handoff] = {}
        self.did: list[tuple[str, object]] = []
        self.fed: asyncio.Queue[DecodeInput] = asyncio.Queue()
        self.executor = ReceiverExecutor(
            self,
            settings("decode", **changes),
            self.landing,
            self.transport,
            self.telemetry,
            VOCAB,
        )
        places = self.landing.take(layout.pages_for(PROMPT), "r")
        generation = Generation(GREEDY, 0, frozenset(), 8)
        self.prefixes = PrefixCache(self.allocator, PAGE)
        asked = request(prompt_ids(PROMPT))
        reader = self.prefixes.read("", asked.submit.token_ids)
        self.handoff = Handoff(asked, generation, places, reader)
        self.handoffs[ONE] = self.handoff

    def feed(self, event: DecodeInput) -> None:
        self.fed.put_nowait(event)

    def send(self, envelope: Envelope) -> None:
        self.did.append(("send", envelope.body))

    def minted(self, attempt: Attempt, request: RequestId) -> None:
        self.did.append(("minted", request))

    def cache(self, handoff: Handoff) -> None:
        self.did.append(("cache", handoff))

    def attach(self, committed: Attach) -> None:
        self.did.append(("attach", committed.first_token))

    def handoff_failed(self, handoff: Handoff, failure: Failure) -> None:
        self.did.append(("failed", failure))

    def pool_changed(self) -> None:
        self.did.append(("freed", None))

    def breach(self, prefill: Peer, problem: str) -> None:
        self.did.append(("breach", prefill))

    def count(self, state: PageState) -> int:
        return self.allocator.counts()[state.name.lower()]

    def write(self, first_token: int = 5, digest: str = "") -> None:
        """What a whole transfer leaves in memory."""
        pages, tag = self.handoff.lease.pages, self.handoff.lease.tag
        self.pool.stamp(pages, tag)
        self.pool.metadata[0] = np.array(metadata_words(tag, first_token, len(pages), PROMPT, digest), np.uint64)

    def verdict(self, first_token: int = 5, digest: str = "") -> str:
        self.executor.carry_out(Verify(ONE, first_token, digest))
        verified = self.fed.get_nowait()
        assert isinstance(verified, Verified)
        return "" if verified.failure is None else verified.failure.code


def told(body: Abort | Committed, to: Peer = PEER) -> Send:
    return Send(Envelope(ME, to, ONE, body, OpenAttempts(Attempt(2), (ONE,))))


def test_what_is_only_passed_on() -> None:
    desk = Desk()
    for effect in (
        Minted(ONE, RequestId("r")),
        Cache(ONE),
        Attach(ONE, 7),
        RequestFailed(ONE, FAILURE),
        told(Committed()),
    ):
        desk.executor.carry_out(effect)
    assert desk.did == [
        ("minted", "r"),
        ("cache", desk.handoff),
        ("attach", 7),
        ("failed", FAILURE),
        ("send", Committed()),
    ]
    assert desk.handoff.state == "committed"


def test_aborts_are_counted_by_first_and_again() -> None:
    desk = Desk()
    for to in (PEER, PEER, Peer(1, PEER.incarnation)):
        desk.executor.carry_out(told(Abort(), to))
    assert 'aborts_sent_total{role="decode",worker="decode-0"} 2' in desk.telemetry.render()
    assert 'aborts_resent_total{role="decode",worker="decode-0"} 1' in desk.telemetry.render()


def test_ignored_messages_are_counted_by_reason() -> None:
    desk = Desk()
    desk.executor.carry_out(Ignored("abort_ack", "early"))
    assert 'kind="abort_ack",reason="early"' in desk.telemetry.render()


# ---------------------------------------------------------------- verification


def test_whole_memory_verifies() -> None:
    desk = Desk()
    desk.write()
    assert desk.verdict() == ""


@pytest.mark.parametrize("first_token", [VOCAB, 1 << 30, -1])
def test_a_token_that_is_none_of_the_models_fails_the_attempt(first_token: int) -> None:
    """It would be fed to the engine at the next step, whose error would end every request of this worker."""
    desk = Desk()
    desk.write(max(first_token, 0))
    assert desk.verdict(first_token) == "invalid_token_id"


def test_a_page_without_its_tag_fails_the_attempt() -> None:
    desk = Desk()
    desk.write()
    desk.pool.tags[desk.handoff.lease.pages[1]] = 1
    assert desk.verdict() == "coverage_mismatch"
    assert 'where="commit"' in desk.telemetry.render()


def test_metadata_must_agree_with_done() -> None:
    desk = Desk()
    desk.write(first_token=6)
    assert desk.verdict(first_token=5) == "metadata_mismatch"


def test_a_digest_that_is_on_must_come() -> None:
    """HELLO agreed on it: an empty one would be no check at all."""
    desk = Desk(payload_digest="blake2b")
    desk.write()
    assert desk.verdict(digest="") == "digest_mismatch"


def test_a_digest_is_compared_with_the_bytes() -> None:
    desk = Desk(payload_digest="blake2b")
    digest = payload_digest(desk.pool, desk.handoff.lease.pages)
    desk.write(digest=digest)
    assert desk.verdict(digest=digest) == ""
    desk.pool.kv[desk.handoff.lease.pages[0]] += 1
    assert desk.verdict(digest=digest) == "digest_mismatch"


# ---------------------------------------------------------------- holds


def test_a_hold_keeps_pages_and_seat() -> None:
    desk = Desk()
    desk.executor.carry_out(Hold(ONE, (PEER,)))
    assert (desk.count(PageState.HELD), desk.landing.free_seats) == (3, 3)
    assert (desk.handoff.state, desk.handoff.awaiting) == ("holding", (PEER,))


def test_a_hold_on_a_dead_writer_is_fenced_at_once() -> None:
    """Its death was told before this attempt existed, and nobody will tell it again."""
    desk = Desk()
    desk.transport.dead.add(PEER)
    desk.executor.carry_out(Hold(ONE, (PEER,)))
    assert desk.fed.get_nowait() == FenceProved(PEER, ONE)


def test_a_hold_is_fenced_at_once_where_that_hurts_nobody() -> None:
    """tcp: decode stops placing what bears the tag, whoever is still writing."""
    desk = Desk()
    desk.transport.can_revoke = True
    desk.executor.carry_out(Hold(ONE, (PEER,)))
    assert desk.transport.revoked == [desk.handoff.lease.tag]
    assert desk.fed.get_nowait() == FenceProved(PEER, ONE)


@pytest.mark.parametrize("end", [Attach(ONE, 7), Release(ONE, 0, Proof.DRAINED)], ids=["commit", "release"])
def test_a_lease_that_ends_is_writable_no_more(end: ReceiverEffect) -> None:
    desk = Desk()
    desk.executor.carry_out(end)
    assert desk.transport.disarmed == [desk.handoff.lease.tag]


def test_a_release_gives_back_pages_and_seat_once() -> None:
    desk = Desk()
    desk.executor.carry_out(Hold(ONE, (PEER,)))
    desk.executor.carry_out(Release(ONE, 0, Proof.DRAINED))
    assert (desk.count(PageState.FREE), desk.landing.free_seats) == (8, 4)
    assert desk.did == [("freed", None)]
    assert 'releases_total{proof="drained"' in desk.telemetry.render()
    with pytest.raises(KeyError):
        desk.executor.carry_out(Release(ONE, 0, Proof.DRAINED))


def test_a_committed_lease_that_ends_is_no_hold() -> None:
    desk = Desk()
    desk.executor.carry_out(Release(ONE, 0, Proof.DRAINED))
    assert desk.count(PageState.FREE) == 8
    assert "quiesce_releases_total{" not in desk.telemetry.render()


def test_tainted_pages_never_circulate_again() -> None:
    desk = Desk()
    desk.handoff.tainted = True
    desk.executor.carry_out(Release(ONE, 0, Proof.DRAINED))
    assert (desk.count(PageState.QUARANTINED), desk.landing.free_seats) == (3, 4)


def test_quarantine_is_visible_and_ends_by_a_proof() -> None:
    desk = Desk()
    desk.executor.carry_out(Hold(ONE, (PEER,)))
    desk.executor.carry_out(Quarantine(ONE, (PEER,)))
    assert (desk.handoff.state, desk.count(PageState.QUARANTINED)) == ("quarantined", 3)
    desk.executor.carry_out(Release(ONE, 0, Proof.FENCED))
    assert desk.count(PageState.FREE) == 8


def test_a_release_by_timeout_is_labelled() -> None:
    desk = Desk()
    desk.executor.carry_out(Hold(ONE, (PEER,)))
    desk.executor.carry_out(Release(ONE, 0, Proof.TIMEOUT))
    assert 'unsafe_releases_total{role="decode",worker="decode-0"} 1' in desk.telemetry.render()


def test_pages_are_marked_by_their_own_state_only() -> None:
    """A lease that was given back cannot be held: invariants, not luck."""
    desk = Desk()
    desk.allocator.release(desk.handoff.lease.pages)
    with pytest.raises(InvariantBroken):
        desk.executor.carry_out(Hold(ONE, (PEER,)))


# ---------------------------------------------------------------- fences


def test_a_dead_writer_is_fenced_without_harm() -> None:
    desk = Desk(fence_policy="fence")
    desk.transport.dead.add(PEER)
    desk.executor.carry_out(TryFence(ONE, (PEER,)))
    assert desk.fed.get_nowait() == FenceProved(PEER, ONE)
    assert desk.transport.killed == []


@pytest.mark.parametrize(("policy", "killed"), [("quarantine", []), ("fence", [PEER])])
def test_a_living_writer_is_killed_by_policy_only(policy: str, killed: list[Peer]) -> None:
    desk = Desk(fence_policy=policy)
    desk.executor.carry_out(TryFence(ONE, (PEER,)))
    assert desk.transport.killed == killed
    assert desk.fed.empty()


def test_a_writer_that_cannot_be_killed_leaves_the_quarantine() -> None:
    """No proof, so nothing follows; and the worker goes on."""
    desk = Desk(fence_policy="fence")
    desk.transport.may_kill = False
    desk.executor.carry_out(TryFence(ONE, (PEER,)))
    assert desk.fed.empty()


# ---------------------------------------------------------------- clocks


@pytest.mark.parametrize("timer", list(Timer))
async def test_clocks_feed_their_input(timer: Timer) -> None:
    desk = Desk(handoff_timeout_s=0.001, hold_deadline_s=0.001, resend_s=0.001)
    desk.executor.carry_out(StartTimer(ONE, timer))
    assert await asyncio.wait_for(desk.fed.get(), 5) == TimerFired(ONE, timer)


async def test_stopped_clocks_feed_nothing() -> None:
    desk = Desk(handoff_timeout_s=0.001, hold_deadline_s=0.001)
    desk.executor.carry_out(StartTimer(ONE, Timer.HANDOFF))
    desk.executor.carry_out(StopTimers(ONE))
    desk.executor.carry_out(StartTimer(Attempt(2), Timer.HOLD))
    desk.executor.carry_out(StartTimer(Attempt(3), Timer.HOLD))
    assert await asyncio.wait_for(desk.fed.get(), 5) == TimerFired(Attempt(2), Timer.HOLD)
    desk.executor.close()
    assert desk.fed.empty() or desk.fed.get_nowait() == TimerFired(Attempt(3), Timer.HOLD)
