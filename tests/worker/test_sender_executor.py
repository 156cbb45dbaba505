"""Prefill's executor: every effect does what it says to source pages, writes, streams and clocks, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from quiesce.ids import Attempt, AttemptKey, Incarnation, PageTag, Peer, RequestId
from quiesce.integrity.coverage import metadata_words
from quiesce.kv.runs import pack_runs
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.messages import Bound, Envelope, Failure, Fault, Lease
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.sender_io import (
    Launch,
    Outcome,
    Poisoned,
    PrefillDone,
    PrefillFailed,
    ReleaseSource,
    Reply,
    SenderIgnored,
    SenderTimer,
    SenderTimerFired,
    StartCompute,
    StartSenderTimer,
    StopCompute,
    StopSenderTimers,
    WriteSettled,
)
from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.contract import Completion, Target, Write
from quiesce.worker.job import Job
from quiesce.worker.outlet import PrefillInput
from quiesce.worker.prompt import Prompt
from quiesce.worker.sender_executor import SenderExecutor

from .requests import request, settings
from .rig import PAGE, prompt_ids

DECODE = Peer(0, Incarnation("a" * 32))
ME = Peer(0, Incarnation("b" * 32))
KEY = AttemptKey(DECODE, Attempt(1))
R = RequestId("r")
FAILURE = Failure("aborted", "It ended.", Fault.DECODE)
SOURCE = np.array([4, 5, 0], np.int32)
PLACES = np.array([7, 2, 3], np.int32)
LEASE = Lease(PageTag(77), 3, pack_runs(PLACES), 1)
DIGEST = "0123456789abcdef" * 2


class FakeTarget:
    pages = 8


class FakeSender:
    capabilities = Capabilities()
    completion_fd = -1

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.ended: list[Completion] = []

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> Target:
        return FakeTarget()

    def launch(self, target: Target, write: Write) -> None:
        self.writes.append(write)

    def completions(self) -> list[Completion]:
        ended, self.ended = self.ended, []
        return ended

    def close_target(self, target: Target) -> None: ...
    def close(self) -> None: ...


class Desk:
    """The worker as its executor sees it; `did` has what it was told, in order."""

    def __init__(self, **changes: Any) -> None:
        self.transport = FakeSender()
        self.telemetry = Telemetry("prefill", "prefill-0")
        self.target: Target | None = FakeTarget()
        self.did: list[tuple[object, ...]] = []
        self.fed: asyncio.Queue[PrefillInput] = asyncio.Queue()
        self.job = Job(request(prompt_ids(2 * PAGE + 1)))
        self.job.prompt = Prompt(self.job.request, SOURCE)
        self.jobs = {R: self.job}
        self.executor = SenderExecutor(
            self, settings("prefill", **changes), self.transport, self.telemetry, self.target_of
        )

    def feed(self, event: PrefillInput) -> None:
        self.fed.put_nowait(event)

    def send(self, envelope: Envelope) -> None:
        self.did.append(("send", envelope.body))

    def target_of(self, decode: Peer) -> Target | None:
        return self.target

    def start_compute(self, job: Job, held_tokens: int) -> None:
        self.did.append(("start", job, held_tokens))

    def source_poisoned(self, key: AttemptKey) -> None:
        self.did.append(("poisoned", key))

    def cache_source(self, job: Job) -> None:
        self.did.append(("cache", job))

    def free_source(self, job: Job, proof: Proof) -> None:
        self.did.append(("free", job, proof))

    def request_failed(self, request: RequestId, failure: Failure) -> None:
        self.did.append(("failed", request, failure))

    def request_done(self, request: RequestId) -> None:
        self.did.append(("done", request))

    def breach(self, decode: Peer, problem: str) -> None:
        self.did.append(("breach", decode))


def launch(write: int = 1, first: int = 0, pages: int = 3, *, last: bool = False, lease: Lease = LEASE) -> Launch:
    return Launch(KEY, R, write, first, pages, lease, last, 9 if last else -1)


def test_what_is_only_passed_on() -> None:
    desk = Desk()
    desk.executor.carry_out(Reply(Envelope(ME, DECODE, Attempt(1), Bound())))
    desk.executor.carry_out(StartCompute(R, 4))
    desk.executor.carry_out(PrefillFailed(R, FAILURE))
    desk.executor.carry_out(PrefillDone(R))
    desk.executor.carry_out(ReleaseSource(R, Proof.DRAINED))
    assert desk.did == [
        ("send", Bound()),
        ("start", desk.job, 4),
        ("failed", R, FAILURE),
        ("done", R),
        ("free", desk.job, Proof.DRAINED),
    ]


def test_stop_compute_raises_the_flag_between_layers() -> None:
    desk = Desk()
    desk.executor.carry_out(StopCompute(R))
    assert desk.job.stopped
    assert desk.job.prompt is not None
    assert desk.job.prompt.abort.aborted


def test_a_write_goes_from_source_to_lease_in_prompt_order() -> None:
    desk = Desk()
    desk.executor.carry_out(launch(first=1, pages=2))
    (write,) = desk.transport.writes
    assert (write.source_pages.tolist(), write.target_pages.tolist()) == ([5, 0], [2, 3])
    assert (write.tag, write.metadata) == (77, None)
    assert desk.executor.outstanding_to(DECODE)


def test_the_last_write_carries_metadata_with_the_digest() -> None:
    desk = Desk()
    desk.job.payload_digest = DIGEST
    desk.executor.carry_out(launch(last=True))
    metadata = desk.transport.writes[0].metadata
    assert metadata is not None
    assert metadata.slot == 1
    assert metadata.words == metadata_words(PageTag(77), 9, 3, 2 * PAGE + 1, DIGEST)


def test_a_write_without_a_destination_is_quiesced() -> None:
    """The stream is down: it was counted, so it must settle, and nothing of it can land."""
    desk = Desk()
    desk.target = None
    desk.executor.carry_out(launch(write=3))
    assert desk.fed.get_nowait() == WriteSettled(KEY, 3, Outcome.FAILED_QUIESCED)
    assert desk.transport.writes == []


@pytest.mark.parametrize("runs", [b"\7" * 8, pack_runs(np.array([2, 2])), pack_runs(np.array([7, 8, 1]))])
def test_a_nonsense_lease_fails_its_attempt_and_ends_the_stream(runs: bytes) -> None:
    """Pages outside the pool, or twice, come from a peer: its write settles, and no exception leaves the machine."""
    desk = Desk()
    desk.executor.carry_out(launch(write=3, lease=Lease(PageTag(77), 3, runs, 1)))
    assert desk.fed.get_nowait() == WriteSettled(KEY, 3, Outcome.FAILED_QUIESCED)
    assert desk.transport.writes == []
    assert ("breach", KEY.decode) in desk.did


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_completion_settles_its_own_write_once(outcome: Outcome) -> None:
    desk = Desk()
    desk.executor.carry_out(launch(write=41, pages=1))
    desk.executor.carry_out(launch(write=42, first=1, pages=2))
    second = desk.transport.writes[1].id
    desk.transport.ended = [Completion(second, outcome, 128, 0.5, "as told")]
    desk.executor.settle_writes()
    assert desk.fed.get_nowait() == WriteSettled(KEY, 42, outcome)
    desk.executor.settle_writes()
    assert desk.fed.empty()
    assert f'writes_total{{outcome="{outcome.value}"' in desk.telemetry.render()
    landed = 'transfer_bytes_total{role="prefill",worker="prefill-0"} 128' in desk.telemetry.render()
    assert landed == (outcome is Outcome.LANDED)


def test_poison_and_ignored_messages_are_counted() -> None:
    desk = Desk()
    desk.executor.carry_out(Poisoned(KEY))
    desk.executor.carry_out(SenderIgnored("publish", "duplicate"))
    assert desk.did == [("poisoned", KEY)]
    assert 'poisoned_attempts_total{role="prefill",worker="prefill-0"} 1' in desk.telemetry.render()
    assert 'kind="publish",reason="duplicate"' in desk.telemetry.render()


@pytest.mark.parametrize("timer", list(SenderTimer))
async def test_clocks_feed_their_input(timer: SenderTimer) -> None:
    desk = Desk(handoff_timeout_s=0.001, resend_s=0.001)
    desk.executor.carry_out(StartSenderTimer(R, timer))
    assert await asyncio.wait_for(desk.fed.get(), 5) == SenderTimerFired(R, timer)


async def test_stopped_clocks_feed_nothing() -> None:
    desk = Desk(handoff_timeout_s=0.001, resend_s=0.001)
    desk.executor.carry_out(StartSenderTimer(KEY, SenderTimer.RESEND))
    desk.executor.carry_out(StopSenderTimers(KEY))
    desk.executor.carry_out(StartSenderTimer(R, SenderTimer.REQUEST))
    assert await asyncio.wait_for(desk.fed.get(), 5) == SenderTimerFired(R, SenderTimer.REQUEST)
    desk.executor.close()
