"""Carries out the sender machine's effects on source pages, the transport and the streams of prefill."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from quiesce.errors import BadFrame
from quiesce.ids import AttemptKey, Peer
from quiesce.integrity.coverage import metadata_words
from quiesce.kv.runs import Pages, unpack_runs
from quiesce.protocol.sender_io import Launch, Outcome, Poisoned, SenderEffect, WriteSettled
from quiesce.telemetry.logs import ids
from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.contract import Metadata, Sender, Target, Write
from quiesce.worker.job import Job
from quiesce.worker.outlet import OutletHost
from quiesce.worker.prefill_executor import PrefillExecutor
from quiesce.worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class SenderExecutor(PrefillExecutor):
    """One per prefill worker that writes. `target_of` gives the memory of a decode life."""

    def __init__(
        self,
        host: OutletHost,
        settings: WorkerSettings,
        transport: Sender,
        telemetry: Telemetry,
        target_of: Callable[[Peer], Target | None],
    ) -> None:
        super().__init__(host, settings, telemetry)
        self._transport = transport
        self._target_of = target_of
        self._writes: dict[int, tuple[AttemptKey, int, Job]] = {}
        self._next_write = 1

    def carry_out(self, effect: SenderEffect) -> None:
        match effect:
            case Launch():
                self._launch(effect)
            case Poisoned(key):
                self._host.source_poisoned(key)
                self._telemetry.inc("quiesce_poisoned_attempts")
                log.warning("poisoned: a write has an unknown fate", extra=ids(attempt=key.attempt, peer=key.decode))
            case _:
                self.carry_out_shared(effect)

    # ------------------------------------------------------------ writes

    def _launch(self, launch: Launch) -> None:
        """Hand one write to the transport. It was counted before; one that cannot start settles as quiesced."""
        target = self._target_of(launch.key.decode)
        job = self._host.jobs[launch.request]
        places = None if target is None else self._places(launch, job, target)
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

    def _places(self, launch: Launch, job: Job, target: Target) -> Pages | None:
        """The lease's pages in prompt order; None when decode leased nonsense."""
        if launch.key not in job.places:
            try:
                job.places[launch.key] = unpack_runs(launch.lease.runs, target.pages)
            except BadFrame as error:
                self._host.breach(launch.key.decode, f"PUBLISH of attempt {launch.key.attempt}: {error}")
        return job.places.get(launch.key)

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


def _metadata(launch: Launch, job: Job) -> Metadata:
    pages = 0 if job.prompt is None else len(job.prompt.pages_to_send)
    prompt_tokens, digest = job.request.prompt_tokens, job.payload_digest
    words = metadata_words(launch.lease.tag, launch.first_token, pages, prompt_tokens, digest)
    return Metadata(launch.lease.metadata_slot, words)
