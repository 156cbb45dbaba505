"""Carries out the puller machine's effects on decode's pages, its own reads, batch and streams."""

from __future__ import annotations

import logging
import time

import msgspec

from quiesce.errors import BadFrame
from quiesce.ids import Attempt, PageTag, Peer
from quiesce.kv.runs import Pages, unpack_runs
from quiesce.protocol.puller_io import CloseEndpoint, EndpointClosed, LaunchRead, PullerEffect, ReadSettled
from quiesce.protocol.sender_io import Outcome
from quiesce.telemetry.logs import ids
from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.contract import Completion
from quiesce.transport.pulling import Read, Source
from quiesce.worker.decode_executor import DecodeExecutor
from quiesce.worker.handoff import Handoff
from quiesce.worker.intake import IntakeHost
from quiesce.worker.landing import Landing
from quiesce.worker.read_endpoint import ReadEndpoint
from quiesce.worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class _Reading(msgspec.Struct, frozen=True, eq=False):
    """A read under way: what its completion is about."""

    attempt: Attempt
    read: int
    peer: Peer
    handoff: Handoff


class PullerExecutor(DecodeExecutor):
    """One per decode worker that reads."""

    def __init__(
        self,
        host: IntakeHost,
        settings: WorkerSettings,
        landing: Landing,
        endpoint: ReadEndpoint,
        telemetry: Telemetry,
        vocab_size: int,
    ) -> None:
        super().__init__(host, settings, landing, telemetry, vocab_size)
        self._endpoint = endpoint
        self._reads: dict[int, _Reading] = {}
        self._next_read = 1
        self._places: dict[PageTag, Pages] = {}
        self._poisoned: set[PageTag] = set()

    def carry_out(self, effect: PullerEffect) -> None:
        match effect:
            case LaunchRead():
                self._launch(effect)
            case CloseEndpoint(attempt, peers):
                self._close_endpoint(attempt, peers)
            case _:
                self.carry_out_shared(effect)

    # ------------------------------------------------------------ reads

    def _launch(self, launch: LaunchRead) -> None:
        """Hand one read to the transport. It was counted before; one that cannot start settles as quiesced."""
        source = self._endpoint.source_of(launch.peer)
        places = None if source is None else self._places_of(launch, source)
        if source is None or places is None:
            self._host.feed(ReadSettled(launch.attempt, launch.read, Outcome.FAILED_QUIESCED))
            return
        handoff = self._host.handoffs[launch.attempt]
        handoff.state = "reading"
        span = slice(launch.first_page, launch.first_page + launch.pages)
        target = handoff.lease.pages[span]
        read = Read(self._next_read, places[span], launch.source.tag, target, launch.target.tag)
        self._reads[read.id] = _Reading(launch.attempt, launch.read, launch.peer, handoff)
        self._next_read += 1
        self._endpoint.launch(source, read)

    def _places_of(self, launch: LaunchRead, source: Source) -> Pages | None:
        """The lent pages in prompt order; None when prefill offered nonsense."""
        if (known := self._places.get(launch.target.tag)) is not None:
            return known
        try:
            places = unpack_runs(launch.source.runs, source.pages)
            if len(places) != launch.target.pages:
                raise BadFrame(f"a lease of {launch.target.pages} pages names {len(places)}")
        except BadFrame as error:
            self._host.breach(launch.peer, f"OFFER for attempt {launch.attempt}: {error}")
            return None
        return self._places.setdefault(launch.target.tag, places)

    def settle_reads(self) -> None:
        """Completions wait: feed each to the machine, once."""
        for completion in self._endpoint.completions():
            reading = self._reads.pop(completion.id)
            self._tell(reading, completion)
            self._host.feed(ReadSettled(reading.attempt, reading.read, completion.outcome))

    def _tell(self, reading: _Reading, completion: Completion) -> None:
        since_s = time.monotonic() - completion.seconds
        about = {"attempt": reading.attempt, "outcome": completion.outcome.value, "bytes": completion.n_bytes}
        self._telemetry.spans.record(reading.handoff.request.id, "transfer", since_s, **about)
        self._telemetry.inc("quiesce_reads", outcome=completion.outcome.value)
        if completion.outcome is Outcome.LANDED:
            self._telemetry.inc("quiesce_transfer_bytes", completion.n_bytes)
            self._telemetry.observe("quiesce_transfer_seconds", completion.seconds)
            return
        reason = {"outcome": completion.outcome.value, "reason": completion.error}
        log.warning("a read failed", extra=ids(attempt=reading.attempt, peer=reading.peer, **reason))
        if completion.outcome is Outcome.FAILED_IN_FLIGHT and reading.handoff.lease.tag not in self._poisoned:
            self._poisoned.add(reading.handoff.lease.tag)
            self._telemetry.inc("quiesce_poisoned_attempts")

    # ------------------------------------------------------------ holds

    def _held(self, attempt: Attempt, handoff: Handoff, awaiting: tuple[Peer, ...]) -> None:
        """Nothing is proved at once: only decode's own reads can tell."""

    def _lease_over(self, tag: PageTag) -> None:
        self._places.pop(tag, None)
        self._poisoned.discard(tag)

    def _close_endpoint(self, attempt: Attempt, peers: tuple[Peer, ...]) -> None:
        """Free of cost while nobody else reads, by a backend with a fence; hurting others is the operator's policy.

        Without one, to break a read may break its lender.
        """
        others = sum(reading.attempt != attempt for reading in self._reads.values())
        is_free = not others and self._endpoint.capabilities.fence
        if not is_free and self._settings.fence_policy != "fence":
            return
        about = ids(attempt=attempt, peer=", ".join(map(str, peers)), count=others)
        log.warning("decode closes its own endpoint: so many reads of others fail with it", extra=about)
        for completion in self._endpoint.renew():
            self._tell(self._reads.pop(completion.id), completion)
        self._reads.clear()
        self._host.feed(EndpointClosed())  # says of every read all there is to say
