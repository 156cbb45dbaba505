"""Who can be played, and the whole life of an actor's process."""

from __future__ import annotations

import socket

from quiesce.transport.conformance.actor import PoolActor, ReceiverActor, WriterActor, serve
from quiesce.transport.conformance.pull_actors import LenderActor, PullerActor

ROLES: dict[str, type[PoolActor]] = {
    "receiver": ReceiverActor,
    "writer": WriterActor,
    "lender": LenderActor,
    "puller": PullerActor,
}


def play(role: str, sock: socket.socket) -> None:
    """The whole life of an actor's process."""
    serve(ROLES[role](), sock)
