"""How a prompt's pages come to decode: what differs between being written to (push) and reading them (pull)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from quiesce.control.handshake import Opened
from quiesce.ids import Attempt, Peer, RequestId
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.messages import Envelope, Failure
from quiesce.protocol.puller_io import PullerInput
from quiesce.protocol.receiver_io import Attach, ReceiverInput
from quiesce.worker.handoff import Handoff, Places
from quiesce.worker.landing import Landing
from quiesce.worker.trace_ring import Record

DecodeInput = ReceiverInput | PullerInput
"""What one of decode's two machines may be fed; each understands its own part."""


class IntakeHost(Protocol):
    """The decode worker, as its intake sees it."""

    handoffs: dict[Attempt, Handoff]

    def feed(self, event: DecodeInput) -> None: ...
    def send(self, envelope: Envelope) -> None: ...
    def minted(self, attempt: Attempt, request: RequestId) -> None: ...
    def cache(self, handoff: Handoff) -> None: ...
    def attach(self, committed: Attach) -> None: ...
    def handoff_failed(self, handoff: Handoff, failure: Failure) -> None: ...
    def pool_changed(self) -> None: ...
    def breach(self, prefill: Peer, problem: str) -> None: ...


class Intake(Protocol):
    """The machine, its executor and the transport under them. Lives on the event loop's thread."""

    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self, prefill: Peer) -> tuple[bytes, Sequence[int]]:
        """What the handshake tells a prefill life of the own memory. Descriptors stay the intake's."""

    def join(self, prefill: Peer, opened: Opened) -> None:
        """A stream to a prefill life begins. `opened` stays the caller's. Raises HandshakeRefused."""

    def leave(self, prefill: Peer) -> None:
        """That stream ended."""

    def part(self, prefill: Peer) -> None:
        """Another life bears its name."""

    def is_shut_out(self, prefill: Peer) -> bool:
        """Whether nothing may come from this life any more."""

    def arm(self, places: Places, grants: tuple[Peer, ...]) -> None:
        """A lease will be published to `grants`. Raises PeerUnusable when one cannot be let in, and then nobody is."""

    def feed(self, event: DecodeInput) -> None:
        """Advance the machine."""

    def export_refusals(self) -> None:
        """Count as metrics what the transport turned away since the last call."""

    def start(self) -> None:
        """Hear the transport, on the running loop."""

    def stop(self) -> None:
        """Hear neither transport nor clocks any more."""

    def close(self) -> None:
        """Nothing lands any more, by whatever the transport can do. On the loop, after `stop`."""


MakeIntake = Callable[[IntakeHost, Landing, Record], Intake]
"""An intake for a worker, whose pages land there and whose steps are recorded."""
