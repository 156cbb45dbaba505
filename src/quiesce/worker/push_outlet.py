"""Prefill writes pages into decode's memory: the sender machine, and the memory of each decode life."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from quiesce.control.handshake import Opened
from quiesce.ids import Peer
from quiesce.protocol import sender
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.sender import SenderState
from quiesce.protocol.sender_io import ChunkComputed, SenderEffect
from quiesce.transport.contract import Sender, Target
from quiesce.worker.driver import Driver
from quiesce.worker.job import Job
from quiesce.worker.outlet import OutletHost, PrefillInput
from quiesce.worker.parts import Parts
from quiesce.worker.prompt import Chunk, Prompt
from quiesce.worker.sender_executor import SenderExecutor
from quiesce.worker.trace_ring import Record


class PushOutlet:
    """One opened target per decode life; it is closed once the life is over and no write of ours is at it."""

    def __init__(self, host: OutletHost, parts: Parts, transport: Sender, record: Record) -> None:
        self._host = host
        self._page_size = parts.settings.page_size
        self._transport = transport
        self._targets: dict[Peer, Target] = {}
        self._parted: set[Peer] = set()
        self.executor = SenderExecutor(host, parts.settings, transport, parts.telemetry, self._targets.get)
        self._driver: Driver[SenderState, Any, SenderEffect] = Driver(
            sender.start(Peer(0, parts.incarnation), batch_pages=parts.settings.transfer_batch_pages),
            sender.step,
            self.executor.carry_out,
            record,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._transport.capabilities

    def describe(self, decode: Peer) -> tuple[bytes, Sequence[int]]:
        return b"", ()

    def join(self, decode: Peer, opened: Opened) -> None:
        self._targets[decode] = self._transport.open_target(opened.descriptor, opened.fds)

    def part(self, decode: Peer) -> None:
        self._parted.add(decode)
        self._close_idle_targets()

    def _close_idle_targets(self) -> None:
        for decode in [each for each in self._parted if not self.executor.outstanding_to(each)]:
            self._parted.discard(decode)
            if (target := self._targets.pop(decode, None)) is not None:
                self._transport.close_target(target)

    def feed(self, event: PrefillInput) -> None:
        self._driver.feed(event)

    def computed(self, job: Job, prompt: Prompt, chunk: Chunk) -> None:
        self._host.feed(
            ChunkComputed(
                job.request.id,
                chunk.first_page,
                chunk.pages,
                chunk.last,
                chunk.first_token,
                chunk.payload_digest,
                chunk.first_logprobs,
                prompt.cached_pages * self._page_size if chunk.last else 0,
            )
        )

    def export_refusals(self) -> None:
        """Nothing: nobody comes here for pages."""

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._transport.completion_fd, self._settle_writes)

    def _settle_writes(self) -> None:
        self.executor.settle_writes()
        self._close_idle_targets()

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._transport.completion_fd)
        self.executor.close()

    def close(self) -> None:
        self._transport.close()
