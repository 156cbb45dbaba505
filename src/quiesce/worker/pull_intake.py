"""Decode reads what prefill lends: the puller machine, and decode's own endpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from quiesce.control.handshake import Opened
from quiesce.ids import Peer
from quiesce.kv.storage import Pool
from quiesce.protocol import puller
from quiesce.protocol.attempt import PullerState
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.puller_io import PullerEffect
from quiesce.transport.pulling import Puller
from quiesce.worker.driver import Driver
from quiesce.worker.handoff import Places
from quiesce.worker.intake import DecodeInput, IntakeHost
from quiesce.worker.landing import Landing
from quiesce.worker.parts import Parts
from quiesce.worker.puller_executor import PullerExecutor
from quiesce.worker.read_endpoint import ReadEndpoint
from quiesce.worker.settings import WorkerSettings
from quiesce.worker.trace_ring import Record


class PullIntake:
    """Nobody else writes here: what proves that pages are free is how decode's own reads ended, and nothing else."""

    def __init__(
        self,
        host: IntakeHost,
        landing: Landing,
        parts: Parts,
        make: Callable[[Pool, WorkerSettings], Puller],
        record: Record,
    ) -> None:
        settings, vocab_size = parts.settings, parts.engine.config.vocab_size
        self._endpoint = ReadEndpoint(lambda: make(parts.pool, settings))
        self._executor = PullerExecutor(host, settings, landing, self._endpoint, parts.telemetry, vocab_size)
        self.driver: Driver[PullerState, Any, PullerEffect] = Driver(
            puller.start(
                parts.incarnation,
                unsafe_release_on_timeout=settings.unsafe_release_on_timeout,
                batch_pages=settings.transfer_batch_pages,
            ),
            puller.step,
            self._executor.carry_out,
            record,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._endpoint.capabilities

    def describe(self, prefill: Peer) -> tuple[bytes, Sequence[int]]:
        return b"", ()

    def join(self, prefill: Peer, opened: Opened) -> None:
        self._endpoint.open(prefill, opened.descriptor, opened.fds)

    def leave(self, prefill: Peer) -> None:
        self._endpoint.close_source(prefill)

    def part(self, prefill: Peer) -> None:
        """Nothing: a life that is over writes nothing here."""

    def is_shut_out(self, prefill: Peer) -> bool:
        return False

    def arm(self, places: Places, grants: tuple[Peer, ...]) -> None:
        """Nothing: the lease is published to nobody."""

    def feed(self, event: DecodeInput) -> None:
        self.driver.feed(event)

    def export_refusals(self) -> None:
        """Nothing: nobody comes here with pages."""

    def start(self) -> None:
        self._endpoint.start(self._executor.settle_reads)

    def stop(self) -> None:
        self._endpoint.stop()
        self._executor.close()

    def close(self) -> None:
        self._endpoint.close()
