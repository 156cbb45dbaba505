"""Prefill writes into decode's memory: the receiver machine, and who may write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from quiesce.control.handshake import Opened
from quiesce.errors import PeerUnusable
from quiesce.ids import Peer
from quiesce.protocol import receiver
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.receiver import ReceiverState
from quiesce.protocol.receiver_io import FenceProved, ReceiverEffect
from quiesce.telemetry.logs import ids
from quiesce.transport.contract import Receiver
from quiesce.transport.shm_segments import SegmentReceiver
from quiesce.worker.driver import Driver
from quiesce.worker.handoff import Places
from quiesce.worker.intake import DecodeInput, IntakeHost
from quiesce.worker.landing import Landing
from quiesce.worker.parts import Parts
from quiesce.worker.receiver_executor import ReceiverExecutor
from quiesce.worker.refused import export_refusals
from quiesce.worker.trace_ring import Record

log = logging.getLogger(__name__)


class PushIntake:
    """What follows from the death of a writer, the transport says."""

    def __init__(self, host: IntakeHost, landing: Landing, parts: Parts, transport: Receiver, record: Record) -> None:
        self._host = host
        self._telemetry, self._lines = parts.telemetry, parts.lines
        self._transport = transport
        self._remote: set[Peer] = set()
        vocab_size, settings = parts.engine.config.vocab_size, parts.settings
        self._executor = ReceiverExecutor(host, settings, landing, transport, parts.telemetry, vocab_size)
        self.driver: Driver[ReceiverState, Any, ReceiverEffect] = Driver(
            receiver.start(parts.incarnation, unsafe_release_on_timeout=settings.unsafe_release_on_timeout),
            receiver.step,
            self._executor.carry_out,
            record,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._transport.capabilities

    def describe(self, prefill: Peer) -> tuple[bytes, Sequence[int]]:
        return self._transport.describe(prefill)

    def join(self, prefill: Peer, opened: Opened) -> None:
        if opened.pidfd < 0:
            self._remote.add(prefill)
        pidfd, opened.pidfd = opened.pidfd, -1
        died = partial(self._prefill_died, opened.hello.worker)
        self._transport.watch(prefill, pidfd, died, asyncio.get_running_loop())

    def _prefill_died(self, worker: str, prefill: Peer) -> None:
        what = "a prefill worker is gone: nothing of it can land any more"
        self._lines.say(log, logging.INFO, what, worker, worker_name=worker, peer=prefill)
        self._telemetry.inc("quiesce_fences")
        self._host.feed(FenceProved(prefill))

    def leave(self, prefill: Peer) -> None:
        """It may write on: what it writes is proved as ever."""

    def part(self, prefill: Peer) -> None:
        """No kernel tells whether a life on another host is over: one that was replaced is kept from writing."""
        if prefill not in self._remote:
            return
        self._remote.discard(prefill)
        try:
            self._transport.kill(prefill)
        except PeerUnusable as error:  # what it holds waits for another proof, in quarantine at last
            log.warning("a replaced prefill life cannot be fenced", extra=ids(peer=prefill, reason=error))

    def is_shut_out(self, prefill: Peer) -> bool:
        return self._transport.is_dead(prefill)

    def arm(self, places: Places, grants: tuple[Peer, ...]) -> None:
        lease = places.lease
        if isinstance(self._transport, SegmentReceiver):
            self._transport.lend(lease.tag, len(lease.pages), grants)
        else:
            self._transport.arm(lease.tag, lease.pages, places.seat)

    def feed(self, event: DecodeInput) -> None:
        self.driver.feed(event)

    def export_refusals(self) -> None:
        export_refusals(self._transport, self._telemetry, "quiesce_refused_writes")

    def start(self) -> None:
        """Writes are not heard of here: prefill says what became of them."""

    def stop(self) -> None:
        self._executor.close()

    def close(self) -> None:
        self._transport.close()
