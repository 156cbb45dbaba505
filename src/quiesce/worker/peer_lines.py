"""What a worker's log says of those at the other ends of its connections."""

from __future__ import annotations

import logging
from collections import defaultdict

from quiesce.control.restraint import Restraint
from quiesce.telemetry.logs import ids


class PeerLines:
    """Lines of a log, but not again and again of one `subject` that comes and goes, in whatever life.

    What is said at one level takes nothing from what may be said at another, and what is not shown takes nothing.
    """

    def __init__(self) -> None:
        self._restraints: defaultdict[int, Restraint] = defaultdict(Restraint)

    def say(self, log: logging.Logger, level: int, what: str, subject: str, **told: object) -> None:
        if not log.isEnabledFor(level):
            return
        if (unsaid := self._restraints[level].unsaid(subject)) is not None:
            log.log(level, what, extra=ids(unsaid=unsaid or None, **told))
