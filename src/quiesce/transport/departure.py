"""Where a write or a read of a backend without a placement of its own can be held."""

from __future__ import annotations

from typing import Generic

from quiesce.transport.flights import J


class Departure(Generic[J]):
    """Where a write or read can be held before it leaves; a seam for the laboratory. The product never waits."""

    def leave(self, job: J, /) -> None:
        """Called by the thread that carries `job` out, before its first byte. What it raises fails it, quiesced."""
