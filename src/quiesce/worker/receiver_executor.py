"""Carries out the receiver machine's effects on decode's pages, seats, batch and streams."""

from __future__ import annotations

import logging

from quiesce.errors import PeerUnusable
from quiesce.ids import Attempt, PageTag, Peer
from quiesce.protocol.receiver_io import FenceProved, ReceiverEffect, TryFence
from quiesce.telemetry.logs import ids
from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.contract import Receiver
from quiesce.worker.decode_executor import DecodeExecutor
from quiesce.worker.handoff import Handoff
from quiesce.worker.intake import IntakeHost
from quiesce.worker.landing import Landing
from quiesce.worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class ReceiverExecutor(DecodeExecutor):
    """One per decode worker that is written to."""

    def __init__(
        self,
        host: IntakeHost,
        settings: WorkerSettings,
        landing: Landing,
        transport: Receiver,
        telemetry: Telemetry,
        vocab_size: int,
    ) -> None:
        super().__init__(host, settings, landing, telemetry, vocab_size)
        self._transport = transport

    def carry_out(self, effect: ReceiverEffect) -> None:
        match effect:
            case TryFence(attempt, peers):
                self._try_fence(attempt, peers)
            case _:
                self.carry_out_shared(effect)

    def _held(self, attempt: Attempt, handoff: Handoff, awaiting: tuple[Peer, ...]) -> None:
        """Proved at once: a fence that hurts nobody, and a writer that was dead before it was told."""
        fenced = self._transport.revoke(handoff.lease.tag)
        for peer in awaiting:
            if fenced or self._transport.is_dead(peer):
                self._host.feed(FenceProved(peer, attempt))

    def _lease_over(self, tag: PageTag) -> None:
        self._transport.disarm(tag)

    def _try_fence(self, attempt: Attempt, peers: tuple[Peer, ...]) -> None:
        """Free of cost when the writer is dead already; killing a live one is the operator's policy."""
        for peer in peers:
            if self._transport.is_dead(peer):
                self._host.feed(FenceProved(peer, attempt))
            elif self._settings.fence_policy == "fence":
                self._kill(peer, attempt)

    def _kill(self, peer: Peer, attempt: Attempt) -> None:
        log.warning("fencing a prefill worker: its other requests fail", extra=ids(peer=peer, attempt=attempt))
        try:
            self._transport.kill(peer)
        except PeerUnusable as error:
            log.error("it could not be fenced", extra=ids(peer=peer, reason=error))  # quarantine remains
