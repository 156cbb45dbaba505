"""What the side whose memory is written, or read, turned away: counted by reason, for backends that look themselves."""

from __future__ import annotations

import threading
from enum import StrEnum


class RefusedTransfer(StrEnum):
    """Why a write, or a read, was not carried out. The value is for people, and may be told to whoever asked for it."""

    NOT_LEASED = "no lease, or window, bears this tag, or it was revoked"
    FOREIGN_PAGE = "a page is not of this lease, or window"
    FOREIGN_SLOT = "the metadata slot is not of this lease"
    REVOKED = "the lease, or window, was revoked while this was under way"
    FENCED = "who asked for it was shut out while this was under way"
    MALFORMED = "this cannot be"


class RefusedConnection(StrEnum):
    """Why a peer that tried to prove who it is was not let in. Who tries nothing is not counted."""

    FENCED = "its life was shut out"
    UNPROVED = "it could not prove a ticket"
    UNCERTIFIED = "it has no certificate that is good here"
    CROWDED = "it has too many connections"


Refusal = RefusedTransfer | RefusedConnection


class Refusals:
    """Counts of one receiver or lender. Thread-safe. A refusal is counted before whoever is refused can know of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Refusal, int] = dict.fromkeys((*RefusedTransfer, *RefusedConnection), 0)

    def count(self, why: Refusal) -> None:
        with self._lock:
            self._counts[why] += 1

    def take(self) -> dict[Refusal, int]:
        """How many there were since the last call, of every kind, also where there were none."""
        with self._lock:
            taken, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return taken
