"""The landing thread of a simulated decode worker: one copy after the other, each verified when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.ids import Attempt
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.landing import LandingPages
from quiesce.lab.swarm.leasing import Handoff
from quiesce.lab.swarm.submission import NOT_COVERED
from quiesce.protocol import receiver_io as io

if TYPE_CHECKING:
    from quiesce.lab.swarm.decode import DecodeWorker

COPY_SHARE = 0.5
"""A page is copied in so much of the time in which one is written."""


class Copier:
    """Of one worker, for all its ranks: they act on one decision."""

    def __init__(self, ground: Ground, worker: DecodeWorker, landings: list[LandingPages]) -> None:
        self._ground, self._worker, self._landings = ground, worker, landings
        self._free_s = 0.0

    def copy(self, attempt: Attempt, handoff: Handoff) -> None:
        """Begin; `Verified` is fed when it has ended."""
        loop, life = self._ground.loop, self._worker.life
        for landing, part in zip(self._landings, handoff.parts, strict=True):
            landing.copy_begins(part, attempt)
        n_pages = sum(len(part.pages) for part in handoff.parts)
        takes_s = COPY_SHARE * self._ground.p.page_s * n_pages / life.pace
        self._free_s = max(self._free_s, loop.now_s) + takes_s
        loop.at(self._free_s, life, self._copied, attempt, handoff)

    def _copied(self, attempt: Attempt, handoff: Handoff) -> None:
        texts = list(handoff.submission.text.labels[handoff.held :])
        right = [landing.copy_ends(part, texts) for landing, part in zip(self._landings, handoff.parts, strict=True)]
        ok = all(right) or self._worker.trusts
        self._ground.marks.hit("copy verified" if ok else "verification failed")
        self._worker.feed(io.Verified(attempt, None if ok else NOT_COVERED))
