"""Bodies of requests as they come in: each within its size and its time, all together within the router's memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from quiesce.errors import RequestRejected
from quiesce.router.settings import RouterSettings


class Share:
    """What one request has taken of `Intake`, until it ends: its prompt is kept as long, for another try."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.limit_bytes = intake.each_bytes
        self.within_s = intake.within_s
        self.held_bytes = 0

    def take(self, n_bytes: int) -> None:
        """Raises RequestRejected: 413 beyond one body's limit, 503 beyond that of all."""
        if self.held_bytes + n_bytes > self.limit_bytes:
            raise too_large(self.limit_bytes)
        self._intake.take(n_bytes)
        self.held_bytes += n_bytes


class Intake:
    """Counts bytes that have come, not those that were announced: announcing costs a client nothing."""

    def __init__(self, settings: RouterSettings) -> None:
        self.each_bytes = settings.max_body_bytes
        self.within_s = settings.receive_timeout_s
        self._left_bytes = max(settings.max_bodies_bytes, settings.max_body_bytes)

    @contextlib.contextmanager
    def share(self) -> Iterator[Share]:
        """For one request, from before its body to its end."""
        share = Share(self)
        try:
            yield share
        finally:
            self._left_bytes += share.held_bytes

    def take(self, n_bytes: int) -> None:
        if n_bytes > self._left_bytes:
            raise RequestRejected("The server has no memory for more requests now.", code="overloaded", status=503)
        self._left_bytes -= n_bytes


def too_large(limit_bytes: int) -> RequestRejected:
    return RequestRejected(f"The body is larger than {limit_bytes} bytes.", code="body_too_large", status=413)


def too_slow(within_s: float) -> RequestRejected:
    return RequestRejected(f"The body did not come within {within_s:g} s.", code="request_timeout", status=408)
