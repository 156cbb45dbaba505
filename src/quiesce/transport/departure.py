"""Where a write of a backend without a placement of its own can be held."""

from __future__ import annotations

from quiesce.transport.contract import Write


class Departure:
    """Where a write can be held before it leaves; a seam for the laboratory. The product never waits."""

    def leave(self, write: Write) -> None:
        """Called by the sending thread before the first byte of `write`. What it raises fails the write, quiesced."""
