"""What a worker's log says of those at the other ends of its connections."""

from __future__ import annotations

import logging

from quiesce.control.restraint import Restraint
from quiesce.telemetry.logs import ids


class PeerLines:
    """Lines of a log, but not again and again of one `subject` that comes and goes, in whatever life."""

    def __init__(self) -> None:
        self._restraint = Restraint()

    def say(self, log: logging.Logger, level: int, what: str, subject: str, **told: object) -> None:
        if (unsaid := self._restraint.unsaid(subject)) is not None:
            log.log(level, what, extra=ids(unsaid=unsaid or None, **told))
