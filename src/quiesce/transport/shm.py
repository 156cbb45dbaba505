"""Same-host transport: the sender copies straight into the receiver's sealed memfd.

Bounds are kept by the sender, for a peer's mapping cannot be revoked: both processes belong to one user (the control
socket checks the uid) and to one trust domain.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence

import msgspec

from quiesce.errors import UsageError
from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages, copy_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.bounds import refusal
from quiesce.transport.contract import Completion, Target, Write
from quiesce.transport.descriptors import Descriptor, decode_descriptor, require_fit
from quiesce.transport.flights import Flight, Flights
from quiesce.transport.placement import Placement, Placing
from quiesce.transport.shm_targets import CLOSED, SegmentTarget
from quiesce.transport.shm_targets import ShmTarget as ShmTarget
from quiesce.transport.writer_deaths import WriterDeaths

SHM_CAPABILITIES = Capabilities(drain_ack=True, fence=True, source_fence=True, bounds_checked=True, authenticated=True)
DEFAULT_CALL_DEADLINE_S = 30.0
Mapped = ShmTarget | SegmentTarget

logger = logging.getLogger(__name__)


class ShmDescriptor(Descriptor, frozen=True, omit_defaults=True):
    """`nonce` names this pool's life: 32 hex digits. The memory itself comes as a file descriptor.

    `segmented`: what comes is a channel over which each lease gets memory of its own (`shm_targets`).
    """

    nonce: str
    segmented: bool = False


class ShmSender:
    """Writes pages of `pool` into peers' pools on its own threads (see `contract.Sender`).

    `call_deadline_s` runs from launch. `threads` copy in parallel; writes begin in launch order but are not ordered.
    `placement` is the laboratory's seam. `pool` must outlive the sender.
    """

    capabilities = SHM_CAPABILITIES

    def __init__(
        self,
        pool: Pool,
        threads: int = 1,
        call_deadline_s: float = DEFAULT_CALL_DEADLINE_S,
        placement: Placement | None = None,
    ) -> None:
        self._pool = pool
        self._placement = placement or Placement()
        self._flights: Flights[Mapped, Write] = Flights(call_deadline_s)
        self._targets: list[Mapped] = []
        self._lock = threading.Lock()  # guards `running` and `closed` of targets
        self._threads = [
            threading.Thread(target=self._run, name=f"transfer-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def completion_fd(self) -> int:
        """An eventfd; -1 once closed."""
        return self._flights.completion_fd

    @property
    def late_landings(self) -> int:
        """Writes that came back after their deadline had already ended them as failed_in_flight."""
        return self._flights.late_landings

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> Mapped:
        """Map a receiver's pool, or listen for its segments. `fds` stay the caller's.

        Raises HandshakeRefused when anything does not fit.
        """
        described = decode_descriptor(descriptor, ShmDescriptor)
        require_fit(described, self._pool.layout, fds, n_fds=1)
        target: Mapped
        if described.segmented:
            target = SegmentTarget(fds[0], described.layout, described.pages)
        else:
            target = ShmTarget(Pool.attach(fds[0], described.layout, described.pages, described.slots), described.nonce)
        self._targets.append(target)
        return target

    def launch(self, target: Target, write: Write) -> None:
        """Queue a write and return. Raises UsageError only for a target that this sender did not open."""
        if not isinstance(target, (ShmTarget, SegmentTarget)):
            raise UsageError(f"{target!r} was not opened by a shm sender")
        self._flights.launch(target, write, len(write.source_pages) * self._pool.layout.page_bytes)

    def completions(self) -> list[Completion]:
        for target in self._targets:
            target.tidy()
        return self._flights.completions()

    def close_target(self, target: Target) -> None:
        """Nothing more begins; mappings go when their last running copy ends. Idempotent."""
        if not isinstance(target, (ShmTarget, SegmentTarget)) or target not in self._targets:
            return
        self._targets.remove(target)
        self._flights.drop_waiting(lambda flight: flight.target is target, CLOSED)
        target.close()

    def close(self) -> None:
        """Join every thread: afterwards nobody reads `pool` (source_fence) nor writes a target. Idempotent."""
        self._flights.close()
        for thread in self._threads:
            thread.join()
        self._flights.join()
        for target in self._targets[:]:
            self.close_target(target)

    def _run(self) -> None:
        while (flight := self._flights.take()) is not None:
            outcome, error = self._place(flight)
            self._flights.land(flight, outcome, error)

    def _place(self, flight: Flight[Mapped, Write]) -> tuple[Outcome, str]:
        if not self._flights.depart(flight):
            return Outcome.FAILED_QUIESCED, CLOSED
        memory = flight.target.enter(flight.job.tag)
        if isinstance(memory, str):
            return Outcome.FAILED_QUIESCED, memory
        try:
            return self._place_checked(flight.job, memory)
        finally:
            flight.target.leave(flight.job.tag)

    def _place_checked(self, write: Write, target: Pool) -> tuple[Outcome, str]:
        placing: Placing | None = None
        try:
            if refused := refusal(write, self._pool.pages, target.pages, target.slots):
                return Outcome.FAILED_QUIESCED, refused
            placing = Placing(write, self._pool, target, copy_runs(write.source_pages, write.target_pages))
            self._placement.copy(placing, placing.runs)
            self._placement.stamp(placing)
            if write.metadata is not None:
                self._placement.write_metadata(placing)
        except Exception as error:
            logger.exception("write %d failed", write.id)
            # what has moved cannot be taken back; before that, nothing of the write exists anywhere
            moved = placing is not None and placing.moved
            return Outcome.FAILED_IN_FLIGHT if moved else Outcome.FAILED_QUIESCED, f"{type(error).__name__}: {error}"
        return Outcome.LANDED, ""


class ShmReceiver(WriterDeaths):
    """Lends `pool` to writers and learns of their deaths (see `contract.Receiver`).

    A writer's death is a fence here, and only here: a shm write is a plain CPU store of the writer's own threads into
    a mapping that no forked child inherits, and nothing queues it anywhere. The pidfd becomes readable after the last
    thread of the process has ended, so no store follows. A stopped process is not dead: it goes on when continued.
    Backends with a receiver, kernel or device queue in between must not copy this reasoning.
    """

    capabilities = SHM_CAPABILITIES

    def __init__(self, pool: Pool) -> None:
        """`pool` was made by `Pool.shared` (else UsageError) and outlives the receiver."""
        if pool.fd < 0:
            raise UsageError("a shm receiver needs a shared pool")
        super().__init__()
        self._pool = pool
        self._descriptor = encode_descriptor(pool)

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        return self._descriptor, [self._pool.fd]

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        """Nothing to do: bounds are kept by the sender."""

    def revoke(self, tag: PageTag) -> bool:
        """False: a mapping cannot be taken back from a living writer."""
        return False

    def disarm(self, tag: PageTag) -> None:
        """Nothing to do."""


def encode_descriptor(pool: Pool) -> bytes:
    """Describe a shared pool, with a fresh nonce."""
    return msgspec.msgpack.encode(ShmDescriptor(pool.layout, pool.pages, pool.slots, secrets.token_hex(16)))
