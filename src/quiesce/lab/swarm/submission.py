"""What the router sends to both halves of one try."""

from __future__ import annotations

import msgspec

from quiesce.ids import RequestId, Room
from quiesce.lab.swarm.workload import Ask, Text
from quiesce.protocol.messages import Failure, Fault

CLIENT_GONE = Failure("client_gone", "The client left.", Fault.CLIENT, 499)
NOT_COVERED = Failure("coverage", "A page does not bear the tag.", Fault.PREFILL)
"""Named as in the explorer's worlds, so that the mutants of the registry know them."""

OUT_OF_TIME = Failure("deadline_exceeded", "The request's timeout has passed.", Fault.CLIENT, 504)
ROUTER_GONE = Failure("router_lost", "The router that sent this request is gone.", Fault.ROUTER, 503)


class Submission(msgspec.Struct, frozen=True, eq=False):
    """`turn` counts the tries of a request from 1. `timeout_s` is how long it may still take."""

    request: RequestId
    room: Room
    ask: Ask
    turn: int
    text: Text
    max_tokens: int
    prefill: str
    timeout_s: float | None = None
