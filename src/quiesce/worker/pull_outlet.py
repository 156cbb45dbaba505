"""Prefill lends pages for decode to read: the lender machine, its windows, and who may come for them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from quiesce.control.handshake import Opened
from quiesce.errors import PeerUnusable
from quiesce.ids import PageTag, Peer, mint_first_tag
from quiesce.kv.runs import pack_runs
from quiesce.protocol import lender
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.lender import LenderState
from quiesce.protocol.lender_io import Computed, LenderEffect, ReaderDead
from quiesce.protocol.messages import Lease
from quiesce.telemetry.logs import ids
from quiesce.transport.pulling import Lender
from quiesce.worker.driver import Driver
from quiesce.worker.job import Job
from quiesce.worker.lender_executor import LenderExecutor
from quiesce.worker.outlet import OutletHost, PrefillInput
from quiesce.worker.parts import Parts
from quiesce.worker.prompt import Chunk, Prompt
from quiesce.worker.refused import export_refusals
from quiesce.worker.trace_ring import Record

log = logging.getLogger(__name__)


class PullOutlet:
    """A prompt is lent when all of it is computed, under a tag of its own, which no other window of this life bears."""

    def __init__(self, host: OutletHost, parts: Parts, transport: Lender, record: Record) -> None:
        self._host = host
        self._page_size = parts.settings.page_size
        self._telemetry, self._lines = parts.telemetry, parts.lines
        self._transport = transport
        self._tags = itertools.count(mint_first_tag())
        self._remote: set[Peer] = set()
        self.executor = LenderExecutor(host, parts.settings, transport, parts.telemetry)
        self._driver: Driver[LenderState, Any, LenderEffect] = Driver(
            lender.start(Peer(0, parts.incarnation)), lender.step, self.executor.carry_out, record
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._transport.capabilities

    def describe(self, decode: Peer) -> tuple[bytes, Sequence[int]]:
        return self._transport.describe(decode)

    def join(self, decode: Peer, opened: Opened) -> None:
        """From now on it may read what it is lent, until it dies or is shut out."""
        if opened.pidfd < 0:
            self._remote.add(decode)
        pidfd = os.dup(opened.pidfd) if opened.pidfd >= 0 else -1
        died = partial(self._reader_died, opened.hello.worker)
        self._transport.watch(decode, pidfd, died, asyncio.get_running_loop())

    def _reader_died(self, worker: str, decode: Peer) -> None:
        what = "a decode worker reads here no more"
        self._lines.say(log, logging.INFO, what, worker, worker_name=worker, peer=decode)
        self._telemetry.inc("quiesce_fences")
        self._host.feed(ReaderDead(decode))

    def part(self, decode: Peer) -> None:
        """No kernel says that a life on another host is over: one that was replaced is kept from reading."""
        if decode not in self._remote:
            return
        self._remote.discard(decode)
        try:
            self._transport.kill(decode)
        except PeerUnusable as error:  # what it was lent waits for another proof
            log.warning("a replaced decode life cannot be kept from reading", extra=ids(peer=decode, reason=error))

    def feed(self, event: PrefillInput) -> None:
        self._driver.feed(event)

    def computed(self, job: Job, prompt: Prompt, chunk: Chunk) -> None:
        """Nothing is lent before the last chunk: what decode reads is the whole of what it lacks."""
        if not chunk.last:
            return
        pages = prompt.pages_to_send
        lease = Lease(PageTag(next(self._tags)), len(pages), pack_runs(pages), 0)
        cached_tokens = prompt.cached_pages * self._page_size
        told = chunk.first_token, chunk.payload_digest, chunk.first_logprobs, cached_tokens
        self._host.feed(Computed(job.request.id, (lease,), *told))

    def export_refusals(self) -> None:
        export_refusals(self._transport, self._telemetry, "quiesce_refused_reads")

    def start(self) -> None:
        """Nothing is heard of reads here: decode says what became of them."""

    def stop(self) -> None:
        self.executor.close()

    def close(self) -> None:
        self._transport.close()
