"""A process says that its certificates end, in its log and as numbers: at start, every day, in time and at the end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import partial

from quiesce.telemetry.metrics import Telemetry
from quiesce.trust.contexts import Tls
from quiesce.trust.lifetimes import next_look_s, warnings_of

log = logging.getLogger(__name__)


class Expiry:
    """Of the certificates of a process, if it has any; to be closed."""

    def __init__(self, tls: Tls | None, telemetry: Telemetry, clock: Callable[[], float] = time.time) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._clock = clock
        if tls is not None:
            for each in tls.lifetimes:
                gauge = telemetry.gauge("quiesce_certificate_expires_seconds", file=each.which)
                gauge.set_function(partial(_left_s, tls, each.which))
            self._look(tls)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, tls: Tls) -> None:
        lifetimes, now_s = tls.lifetimes, self._clock()
        for said in warnings_of(lifetimes, now_s):
            log.warning("%s", said)
        self._timer = asyncio.get_running_loop().call_later(next_look_s(lifetimes, now_s), self._look, tls)


def _left_s(tls: Tls, which: str) -> float:
    """Of the file as it is when the number is read."""
    return next((each.ends_s - time.time() for each in tls.lifetimes if each.which == which), math.nan)
