"""How a prompt's pages leave prefill: what differs between writing them there (push) and lending them (pull)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from quiesce.control.handshake import Opened
from quiesce.ids import AttemptKey, Peer, RequestId
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.lender_io import LenderInput
from quiesce.protocol.messages import Envelope, Failure
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.sender_io import SenderInput
from quiesce.worker.job import Job
from quiesce.worker.prompt import Chunk, Prompt
from quiesce.worker.trace_ring import Record

PrefillInput = SenderInput | LenderInput
"""What one of prefill's two machines may be fed; each understands its own part."""


class OutletHost(Protocol):
    """The prefill worker, as its outlet sees it."""

    jobs: dict[RequestId, Job]

    def feed(self, event: PrefillInput) -> None: ...
    def send(self, envelope: Envelope) -> None: ...
    def start_compute(self, job: Job, held_tokens: int) -> None: ...
    def source_poisoned(self, key: AttemptKey) -> None: ...
    def cache_source(self, job: Job) -> None: ...
    def free_source(self, job: Job, proof: Proof) -> None: ...
    def request_failed(self, request: RequestId, failure: Failure) -> None: ...
    def request_done(self, request: RequestId) -> None: ...
    def breach(self, decode: Peer, problem: str) -> None: ...


class Outlet(Protocol):
    """The machine, its executor and the transport under them. Lives on the event loop's thread."""

    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self, decode: Peer) -> tuple[bytes, Sequence[int]]:
        """What the handshake tells a decode life of the own pool. Descriptors stay the outlet's."""

    def join(self, decode: Peer, opened: Opened) -> None:
        """A decode life is new here. `opened` stays the caller's. Raises HandshakeRefused."""

    def part(self, decode: Peer) -> None:
        """A decode life is over, or another one bears its name."""

    def feed(self, event: PrefillInput) -> None:
        """Advance the machine."""

    def computed(self, job: Job, prompt: Prompt, chunk: Chunk) -> None:
        """Pages of a prompt are final."""

    def export_refusals(self) -> None:
        """Count as metrics what the transport turned away since the last call."""

    def start(self) -> None:
        """Hear the transport, on the running loop."""

    def stop(self) -> None:
        """Hear neither transport nor clocks any more."""

    def close(self) -> None:
        """Join the transport's threads: no source page is read any more. Off the loop, after `stop`."""


MakeOutlet = Callable[[OutletHost, Record], Outlet]
"""An outlet for a worker, whose steps are recorded."""
