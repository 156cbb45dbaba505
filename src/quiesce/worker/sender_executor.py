"""Carries out the sender machine's effects on source pages, the transport and the streams of prefill."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Protocol, assert_never

from quiesce.errors import BadFrame
from quiesce.ids import AttemptKey, Peer, RequestId
from quiesce.integrity.coverage import metadata_words
from quiesce.kv.runs import Pages, unpack_runs
from quiesce.protocol.messages import Envelope, Failure
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.sender_io import (
    CacheSource,
    Launch,
    Outcome,
    Poisoned,
    PrefillDone,
    PrefillFailed,
    ReleaseSource,
    Reply,
    SenderEffect,
    SenderIgnored,
    SenderInput,
    SenderTimer,
    SenderTimerFired,
    StartCompute,
    StartSenderTimer,
    StopCompute,
    StopSenderTimers,
    WriteSettled,
)
from quiesce.telemetry.logs import ids
from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.contract import Metadata, Sender, Target, Write
from quiesce.worker.job import Job
from quiesce.worker.settings import WorkerSettings
from quiesce.worker.timers import Timers, backoff_s

log = logging.getLogger(__name__)


PROGRESS_S = 1.0
PROGRESS_SHARE = 0.25
"""PROGRESS is said that often, and at least so many times before decode, with the same settings, would give up."""


class SenderHost(Protocol):
    """The prefill worker, as its executor sees it."""

    jobs: dict[RequestId, Job]

    def feed(self, event: SenderInput) -> None: ...
    def send(self, envelope: Envelope) -> None: ...
    def target_of(self, decode: Peer) -> Target | None: ...
    def start_compute(self, job: Job, held_tokens: int) -> None: ...
    def source_poisoned(self, key: AttemptKey) -> None: ...
    def cache_source(self, job: Job) -> None: ...
    def free_source(self, job: Job, proof: Proof) -> None: ...
    def request_failed(self, request: RequestId, failure: Failure) -> None: ...
    def request_done(self, request: RequestId) -> None: ...


class SenderExecutor:
    """One per prefill worker. Every branch does what its effect says, in the machine's order, and no more."""

    def __init__(self, host: SenderHost, settings: WorkerSettings, transport: Sender, telemetry: Telemetry) -> None:
        self._host = host
        self._settings = settings
        self._transport = transport
        self._telemetry = telemetry
        self._timers = Timers()
        self._writes: dict[int, tuple[AttemptKey, int, Job]] = {}
        self._next_write = 1

    def carry_out(self, effect: SenderEffect) -> None:  # noqa: C901 - one branch per effect, each a line
        match effect:
            case Reply(envelope):
                self._host.send(envelope)
            case StartCompute(request, held_tokens):
                self._host.start_compute(self._host.jobs[request], held_tokens)
            case StopCompute(request):
                self._host.jobs[request].stop()
            case Launch():
                self._launch(effect)
            case ReleaseSource(request, proof):
                self._host.free_source(self._host.jobs[request], proof)
            case PrefillFailed(request, failure):
                self._host.request_failed(request, failure)
            case CacheSource(request):
                self._host.cache_source(self._host.jobs[request])
            case PrefillDone(request):
                self._host.request_done(request)
            case Poisoned(key):
                self._host.source_poisoned(key)
                self._telemetry.inc("quiesce_poisoned_attempts")
                log.warning("poisoned: a write has an unknown fate", extra=ids(attempt=key.attempt, peer=key.decode))
            case StartSenderTimer(subject, timer, round_):
                self._start_timer(subject, timer, round_)
            case StopSenderTimers(subject):
                self._timers.stop(subject)
            case SenderIgnored(kind, reason):
                self._telemetry.inc("quiesce_ignored_messages", kind=kind, reason=reason)
            case _:
                assert_never(effect)

    # ------------------------------------------------------------ writes

    def _launch(self, launch: Launch) -> None:
        """Hand one write to the transport. It was counted before; one that cannot start settles as quiesced."""
        target = self._host.target_of(launch.key.decode)
        job = self._host.jobs[launch.request]
        places = None if target is None else _places(launch, job, target)
        if target is None or job.prompt is None or places is None:
            self._host.feed(WriteSettled(launch.key, launch.write, Outcome.FAILED_QUIESCED))
            return
        span = slice(launch.first_page, launch.first_page + launch.pages)
        write = Write(
            id=self._next_write,
            source_pages=job.prompt.pages_to_send[span],
            target_pages=places[span],
            tag=launch.lease.tag,
            metadata=_metadata(launch, job) if launch.last else None,
        )
        self._writes[write.id] = (launch.key, launch.write, job)
        self._next_write += 1
        self._transport.launch(target, write)

    def settle_writes(self) -> None:
        """Completions wait: feed each to the machine, once."""
        for completion in self._transport.completions():
            key, write, job = self._writes.pop(completion.id)
            self._observe_end(job)
            since_s = time.monotonic() - completion.seconds
            about = {"attempt": key.attempt, "outcome": completion.outcome.value, "bytes": completion.n_bytes}
            self._telemetry.spans.record(job.request.id, "transfer", since_s, **about)
            self._telemetry.inc("quiesce_writes", outcome=completion.outcome.value)
            if completion.outcome is Outcome.LANDED:
                self._telemetry.inc("quiesce_transfer_bytes", completion.n_bytes)
                self._telemetry.observe("quiesce_transfer_seconds", completion.seconds)
            else:
                reason = {"outcome": completion.outcome.value, "reason": completion.error}
                log.warning("a write failed", extra=ids(attempt=key.attempt, peer=key.decode, **reason))
            self._host.feed(WriteSettled(key, write, completion.outcome))

    def _observe_end(self, job: Job) -> None:
        """A write ended: if its request is over and this was its last one, that is a term of the hold inequality."""
        if job.stopped_s is not None and not any(other is job for _, _, other in self._writes.values()):
            self._telemetry.observe("quiesce_inflight_write_seconds", time.monotonic() - job.stopped_s)

    def outstanding_to(self, decode: Peer) -> bool:
        return any(key.decode == decode for key, _, _ in self._writes.values())

    # ------------------------------------------------------------ clocks

    def _start_timer(self, subject: Hashable, timer: SenderTimer, round_: int) -> None:
        self._timers.start(subject, timer.value, self._delay_s(timer, round_), self._fire(subject, timer))

    def _fire(self, subject: Hashable, timer: SenderTimer) -> Callable[[], None]:
        return lambda: self._host.feed(SenderTimerFired(subject, timer))  # type: ignore[arg-type]  # as it was started

    def _delay_s(self, timer: SenderTimer, round_: int) -> float:
        match timer:
            case SenderTimer.RESEND:
                return backoff_s(self._settings.resend_s, round_)
            case SenderTimer.PROGRESS:
                return min(PROGRESS_S, PROGRESS_SHARE * self._settings.handoff_timeout_s)
            case _:
                return self._settings.handoff_timeout_s

    def close(self) -> None:
        self._timers.stop_all()


def _places(launch: Launch, job: Job, target: Target) -> Pages | None:
    """The lease's pages in prompt order; None when decode leased nonsense."""
    if launch.key not in job.places:
        try:
            job.places[launch.key] = unpack_runs(launch.lease.runs, target.pages)
        except BadFrame as error:
            log.warning("a lease is refused", extra=ids(attempt=launch.key.attempt, reason=error))
    return job.places.get(launch.key)


def _metadata(launch: Launch, job: Job) -> Metadata:
    pages = 0 if job.prompt is None else len(job.prompt.pages_to_send)
    prompt_tokens, digest = job.request.prompt_tokens, job.payload_digest
    words = metadata_words(launch.lease.tag, launch.first_token, pages, prompt_tokens, digest)
    return Metadata(launch.lease.metadata_slot, words)
