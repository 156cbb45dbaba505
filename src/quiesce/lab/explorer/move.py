"""One thing that happens in a world: who does what, in one line."""

from __future__ import annotations

from typing import Any

from quiesce.ids import AttemptKey, Peer
from quiesce.lab.explorer.lives import shown
from quiesce.lab.explorer.reads import Fetch
from quiesce.protocol.invariants import Flight
from quiesce.protocol.messages import Envelope, Fail, OpenAttempts
from quiesce.protocol.reasons import kind_of
from quiesce.protocol.receiver_io import PeerReplaced, StreamLost
from quiesce.protocol.sender_io import DecodeLost, DecodeReplaced

DECODE = -1
"""Where a notice or a clock belongs: a prefill rank's number, or this."""


class Move(tuple[Any, ...]):
    """(kind, whom it is about ...). `str` is stable and says all of it: no two moves of one state read alike."""

    __slots__ = ()

    def __new__(cls, kind: str, *about: Any) -> Move:
        return super().__new__(cls, (kind, *about))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    @property
    def kind(self) -> str:
        return str(self[0])

    def __str__(self) -> str:
        return " ".join([self.kind, *_words(self.kind, self[1:])])


def _words(kind: str, about: tuple[Any, ...]) -> list[str]:
    match kind, about:
        case (("finish" | "abort"), (number,)):
            return [f"#{number}"]
        case (("arrive" | "ended"), (rank, request)):
            return [f"{request} at p{rank}"]
        case "compute", (rank, request, chunk):
            return [f"{request} chunk {chunk} at p{rank}"]
        case "evict", (cached, _):
            return [f"page {cached.page} of d{cached.decode_rank} from #{cached.attempt}"]
        case "fence", (number, peer):
            return [f"{shown(peer)} from #{number}"]
        case (("cut" | "crash prefill" | "close endpoint" | "rumour"), (rank,)):
            return [f"p{rank}"]
        case (("early ack" | "foreign ack"), (number, peer)):
            return [f"#{number} from {shown(peer)}"]
        case "clock", (where, subject, timer):
            return [f"{timer} of {_subject(subject)} at {_place(where)}"]
        case "notice", (where, fact):
            return [f"at {_place(where)}: {_fact(fact)}"]
        case _:
            return [_one(each) for each in about]


def _one(thing: Any) -> str:
    match thing:
        case Envelope():
            return _message(thing)
        case AttemptKey():
            return _subject(thing)
        case Peer():
            return shown(thing)
        case Fetch(flight=flight, state=state):
            told = "" if state == "known" else f" ({state})"
            return f"read {flight.write} of {_subject(flight.key)} from {shown(flight.sender)}{told}"
        case Flight(sender=sender, key=key, write=write):
            return f"write {write} of {_subject(key)} by {shown(sender)}"
        case _:
            return str(thing)


def _message(said: Envelope) -> str:
    text = f"{kind_of(said.body)} #{said.attempt} {shown(said.sender)} -> {shown(said.to)}"
    if isinstance(said.body, Fail):
        text += f" ({said.body.failure.code}{', poisoned' if said.body.poisoned else ''})"
    return text if said.open_attempts is None else f"{text} {_open(said.open_attempts)}"


def _open(told: OpenAttempts) -> str:
    """Which attempts are open: those listed, and all from the watermark on."""
    return f"[open {' '.join([*map(str, told.below), f'{told.watermark}..'])}]"


def _subject(subject: Any) -> str:
    match subject:
        case AttemptKey(decode=decode, attempt=attempt):
            return f"#{attempt} of {shown(decode)}"
        case int():
            return f"#{subject}"
        case (room, digest):
            return f"room {room} prompt {digest[0]}"
        case _:
            return str(subject)


def _place(where: int) -> str:
    return "decode" if where == DECODE else f"p{where}"


def _fact(fact: Any) -> str:
    match fact:
        case StreamLost(peer=peer) | DecodeLost(decode=peer):
            return f"stream to {shown(peer)} lost"
        case PeerReplaced(old=old) | DecodeReplaced(old=old):
            return f"{shown(old)} is replaced"
        case _:
            return str(fact)
