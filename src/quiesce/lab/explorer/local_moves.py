"""What can happen within one side of a world, whatever the rest of the world is like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quiesce.ids import Peer
from quiesce.lab.explorer import decode_side, prefill_side
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.decode_side import DecodeSide
from quiesce.lab.explorer.lives import life
from quiesce.lab.explorer.move import DECODE, Move
from quiesce.lab.explorer.prefill_side import PrefillSide
from quiesce.protocol.attempt import Phase
from quiesce.protocol.messages import AbortAck, Envelope, Failure, Fault
from quiesce.protocol.receiver_io import Abandon, Received, Timer
from quiesce.protocol.sender_io import Ended, SenderTimer

Local = tuple[Move, str, Any]
"""The move, which fault it is ("" is none), and what comes of it."""

UNDER_WAY = (Phase.PUBLISHED, Phase.LANDED)
ENDED_BY_CLIENT = Failure("client_gone", "The client left.", Fault.CLIENT, 499)
CANCELLED_BY_ROUTER = Failure("cancelled", "The router ended it.", Fault.ROUTER, 503)
STRANGER = Peer(9, life("e", 9, 0))
"""A rank that was never granted anything."""

CLOCK_FAULTS: dict[Any, str] = {Timer.RESEND: "resend", SenderTimer.RESEND: "resend", SenderTimer.PROGRESS: "beat"}


def of_decode(config: Config, side: DecodeSide) -> tuple[Local, ...]:
    kinds = {name for name, _ in config.budget}
    found = [*_served(config, side), *_heard(config, side), *_struck(config, side)]
    return _sorted(each for each in found if not each[1] or each[1] in kinds)


def of_prefill(config: Config, side: PrefillSide) -> tuple[Local, ...]:
    kinds = {name for name, _ in config.budget}
    found = [*_prefilled(config, side), *_ended(config, side)]
    return _sorted(each for each in found if not each[1] or each[1] in kinds)


def _sorted(found: Iterable[Local]) -> tuple[Local, ...]:
    return tuple(sorted(found, key=lambda each: str(each[0])))


# ---------------------------------------------------------------- decode


def _served(config: Config, side: DecodeSide) -> Iterator[Local]:
    for req in side.waiting:
        if decode_side.may_submit(config, side, req):
            yield Move("submit", req.name), "", decode_side.submit(config, side, req)
    for number, attempt in side.machine.attempts.items():
        if attempt.phase is Phase.COMMITTED:
            yield Move("finish", number), "", decode_side.finish(config, side, number)
    read = {each for _, each in side.reading}
    for entry in side.cached:
        if entry[0] not in read:
            yield Move("evict", *entry), "", decode_side.evict(config, side, entry)


def _heard(config: Config, side: DecodeSide) -> Iterator[Local]:
    for fact in side.notices:
        yield Move("notice", DECODE, fact), "", decode_side.notice(config, side, fact)
    for clock in side.clocks:
        fault = CLOCK_FAULTS.get(clock[1], "clock")
        yield Move("clock", DECODE, *clock), fault, decode_side.fire(config, side, clock)


def _struck(config: Config, side: DecodeSide) -> Iterator[Local]:
    for number, attempt in side.machine.attempts.items():
        strays = [] if config.pull else [("foreign ack", STRANGER)]
        if attempt.phase in UNDER_WAY:
            yield Move("abort", number), "abort", decode_side.feed(config, side, Abandon(number, ENDED_BY_CLIENT))
            strays += [("early ack", peer) for peer in attempt.grants if not config.pull]
        for kind, peer in strays:
            for me in (Peer(rank, side.machine.incarnation) for rank in range(config.ranks)):
                said = Envelope(peer, me, number, AbortAck())
                yield Move(kind, number, peer, me), "stray", decode_side.feed(config, side, Received(said))


# ---------------------------------------------------------------- prefill


def _prefilled(config: Config, side: PrefillSide) -> Iterator[Local]:
    rank = side.me.rank
    for req in side.waiting:
        if prefill_side.may_arrive(config, side, req):
            yield Move("arrive", rank, req.name), "", prefill_side.arrive(config, side, req)
    for request, chunk in side.computing:
        yield Move("compute", rank, request, chunk), "", prefill_side.compute(config, side, request, chunk)
    for fact in side.notices:
        yield Move("notice", rank, fact), "", prefill_side.notice(config, side, fact)


def _ended(config: Config, side: PrefillSide) -> Iterator[Local]:
    rank = side.me.rank
    for request in side.machine.requests:
        ended = Ended(request, ENDED_BY_CLIENT)
        yield Move("ended", rank, request), "ended", prefill_side.feed(config, side, ended)
    for clock in side.clocks:
        fault = CLOCK_FAULTS.get(clock[1], "clock")
        yield Move("clock", rank, *clock), fault, prefill_side.fire(config, side, clock)
