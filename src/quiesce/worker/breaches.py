"""Peers that broke the protocol: how often each life of them did, and from when on it is refused."""

from __future__ import annotations

from quiesce.ids import Peer
from quiesce.telemetry.metrics import Telemetry

MOST_BREACHES = 3
"""One may be bad luck, and is got over by a new stream. Who goes on would be joined and disconnected for ever."""
_MOST_LIVES = 1024


class Breaches:
    """What lives of peers sent that cannot be. None of it had an effect: whoever sends it is disconnected."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._counts: dict[Peer, int] = {}
        self._last: dict[Peer, str] = {}

    def note(self, life: Peer, problem: str) -> str:
        """Count one; why the life is disconnected, in words."""
        self._telemetry.inc("quiesce_protocol_breaches")
        if life not in self._counts and len(self._counts) >= _MOST_LIVES:
            oldest = next(iter(self._counts))
            del self._counts[oldest], self._last[oldest]
        self._counts[life] = self._counts.get(life, 0) + 1
        self._last[life] = problem
        return f"it broke the protocol, without effect, and was disconnected: {problem}"

    def why_not(self, life: Peer) -> str:
        """Why a life must not join any more, or ""."""
        count = self._counts.get(life, 0)
        if count < MOST_BREACHES:
            return ""
        return f"this life broke the protocol {count} times and is refused until it is started anew: {self._last[life]}"
