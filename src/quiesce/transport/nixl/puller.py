"""The reading side: an agent for each thread of a lane, which places bytes only while that thread asks how they are."""

from __future__ import annotations

from quiesce.transport.nixl.library import NIXL_CAPABILITIES, NixlDescriptor, library
from quiesce.transport.nixl.sender import NixlLine
from quiesce.transport.onesided_reads import OneSidedPuller


class NixlReadingLine(NixlLine):
    """Reads: the local side of a copy is its target. No thread but the caller's ever places bytes (measured)."""

    operation = "NIXL_READ"
    local, remote = 1, 0
    doubt = ""


class NixlPuller(OneSidedPuller[NixlDescriptor]):
    """Reads pages into `pool` through NIXL agents.

    ================== =============================================================================================
    `landed`           the library says so, and then the tags are stamped
    `failed_quiesced`  nothing was begun; or the connection broke, and the line's agent was ended: nobody places now
    `failed_in_flight` it was not done in time, or we closed: the library keeps the transfer, and whatever the source
                       holds by the time it is served lands in our pages (measured), until `close`
    ================== =============================================================================================

    A read that was not done in time is kept and looked after for as long as its source is open: to end the agent would
    end the read, but the library of a lender that stands still meanwhile ends the lender's process when it goes on.
    """

    capabilities = NIXL_CAPABILITIES
    descriptor = NixlDescriptor

    def _load(self, call_deadline_s: float) -> None:
        library()

    def _connect(self, described: NixlDescriptor) -> NixlLine:
        return NixlReadingLine(self._pool, described)
