"""Why the router ends a request, as workers and clients are told."""

from __future__ import annotations

from collections.abc import Mapping

from quiesce.errors import QuiesceError, RequestRejected
from quiesce.protocol.messages import Failure, Fault

CLIENT_GONE = Failure("client_closed_request", "The client closed the connection.", Fault.CLIENT, 499)
STOP_STRING = Failure("stop_string", "A stop string ended the answer.", Fault.CLIENT, 200)
DEADLINE = Failure("deadline_exceeded", "The request's timeout has passed.", Fault.CLIENT, 504)
ABORTED = Failure("request_aborted", "The request was ended by /abort_request.", Fault.CLIENT, 499)
SIBLING_FAILED = Failure("sibling_failed", "Another answer to the same request failed.", Fault.ROUTER, 499)
PROBE_OVER = Failure("probe_over", "The router needs its test generation no more.", Fault.ROUTER, 499)
SERVER_STOPPING = Failure("server_stopping", "The server is stopping; it has no more time.", Fault.ROUTER, 503)
SERVER_DRAINING = Failure("server_stopping", "The server is stopping and begins nothing new.", Fault.ROUTER, 503)
ROUTER_BUG = Failure("internal_error", "The router failed at this request.", Fault.ROUTER, 500)

RATE_LIMITED = "rate_limit_exceeded"


class GenerationFailed(QuiesceError):
    """A request was started and ended without its answer; no try is left or allowed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Throttled(RequestRejected):
    """A tenant has as much as it may have now. `headers` tell when to come back, and what is left of its limits."""

    def __init__(
        self, message: str, retry_after_s: int, limits: Mapping[str, str] | None = None, code: str = RATE_LIMITED
    ) -> None:
        super().__init__(f"{message} Try again in {retry_after_s} s.", code=code, status=429)
        self.headers = {"retry-after": str(retry_after_s), **(limits or {})}


class ClientGone(QuiesceError):
    """The client left; nobody is there to be told."""
