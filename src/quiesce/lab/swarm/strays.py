"""Messages that nobody should send: acks that nobody asked for, and words of those who were never told anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from quiesce.ids import Incarnation, Peer
from quiesce.protocol import receiver_rules
from quiesce.protocol.messages import AbortAck, Envelope

if TYPE_CHECKING:
    from quiesce.lab.swarm.decode import DecodeWorker

NOBODY = Incarnation("nobody")


def ack_early(decode: DecodeWorker, envelope: Envelope) -> None:
    """The sender acks although nobody asked. Not of a held attempt: there it would be a proof, and a lie."""
    attempt = decode.state.attempts.get(envelope.attempt)
    if attempt is not None and receiver_rules.is_under_way(attempt):
        decode.hear(replace(envelope, body=AbortAck()))


def neighbour(index: int, prefills: int) -> str:
    """Another prefill worker; the same one where there is no other."""
    return f"prefill {(index + 1) % prefills}"


def said_by(life: Incarnation, envelope: Envelope, own: Incarnation) -> Envelope:
    """The same in the name of another life."""
    return replace(envelope, sender=Peer(envelope.sender.rank, NOBODY if life == own else life))
