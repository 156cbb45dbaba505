"""What can happen next in a world."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quiesce.ids import Attempt, AttemptKey, Digest, Peer
from quiesce.lab.explorer import between, decode_side, local_moves, prefill_side, pull_moves, reads
from quiesce.lab.explorer.between import Air, Flown, Wires
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.decode_side import TORN
from quiesce.lab.explorer.lives import is_decode
from quiesce.lab.explorer.local_moves import CANCELLED_BY_ROUTER, UNDER_WAY
from quiesce.lab.explorer.move import DECODE, Move
from quiesce.lab.explorer.world import Budget, World
from quiesce.protocol.invariants import Content
from quiesce.protocol.lender_io import ReaderDead
from quiesce.protocol.messages import Envelope
from quiesce.protocol.receiver_io import Abandon, PeerReplaced, Received, StreamLost
from quiesce.protocol.sender_io import DecodeLost, DecodeReplaced, Ended, Heard, Outcome, WriteSettled

Step = tuple[Move, World]
QUIET = {"submit", "arrive", "vanishes"}
USUAL = {
    "submit",
    "arrive",
    "compute",
    "finish",
    "evict",
    "deliver",
    "serve",
    "refuse",
    "revoke",
    "land",
    "notice",
    "fence",
    "error of fenced write",
}


def spend(config: Config, budget: Budget, fault: str) -> Budget | tuple[()]:
    """The budget in which `fault` may strike once less often; () when it may not.

    A budget of `faults` bounds how many may strike of all kinds together.
    """
    left = dict(budget)
    kinds = [fault, "faults"] if "faults" in left else [fault]
    if any(left.get(kind, 0) < 1 for kind in kinds):
        return ()
    return tuple((name, count - (name in kinds)) for name, count in budget)


def successors(world: World, faults: bool = True) -> Iterator[Step]:
    """Every next move and the world after it, in an order that depends on nothing but the world."""
    yield from _at_decode(world, faults)
    for k in range(len(world.prefills)):
        yield from _at_prefill(world, k, faults)
    yield from _messages(world, faults)
    if world.config.pull:
        yield from _in_pull(world, faults)
    else:
        yield from _writes(world, faults)
    if faults:
        for k in range(len(world.prefills)):
            yield from _at_peer(world, k)
        yield from _at_both(world)


def _paid(world: World, fault: str) -> World | None:
    """The same world with one fault less to come; None if there is none of this kind left."""
    if not (left := world.do(spend, world.budget, fault)):
        return None
    return world.but(budget=left)


# ---------------------------------------------------------------- within one side


def _at_decode(world: World, faults: bool) -> Iterator[Step]:
    for move, fault, step in world.do(local_moves.of_decode, world.decode):
        if not fault:
            yield move, world.decided(step)
        elif faults and (paid := _paid(world, fault)) is not None:
            yield move, paid.decided(step)
    if world.config.fence:
        yield from _fences(world)


def _fences(world: World) -> Iterator[Step]:
    asked = world.do(_asked, world.decode)
    if world.config.pull:
        if asked:
            yield Move("join"), pull_moves.join(world)
        return
    for number, peer in asked:
        yield Move("fence", number, peer), _fence(world, number, peer)


def _in_pull(world: World, faults: bool) -> Iterator[Step]:
    for k in range(len(world.prefills)):
        yield from pull_moves.of_windows(world, k)
    yield from pull_moves.of_reads(world, lambda fault: _paid(world, fault) if faults else None)


def _asked(config: Config, side: decode_side.DecodeSide) -> tuple[tuple[Attempt, Peer], ...]:
    return tuple(sorted(side.asked))


def _fence(world: World, number: Attempt, peer: Peer) -> World:
    me = Peer(0, world.decode.machine.incarnation)
    air = world.do(between.fence, world.air, number, peer, me)
    return world.but(air=air).decided(world.do(decode_side.fence, world.decode, number, peer))


def _at_prefill(world: World, k: int, faults: bool) -> Iterator[Step]:
    for move, fault, step in world.do(local_moves.of_prefill, world.prefills[k]):
        if not fault:
            yield move, world.worked(k, step)
        elif faults and (paid := _paid(world, fault)) is not None:
            yield move, paid.worked(k, step)


# ---------------------------------------------------------------- messages


def _messages(world: World, faults: bool) -> Iterator[Step]:
    copied = _paid(world, "copy") if faults else None
    lossy = _paid(world, "loss") if faults else None
    for message, deliver, lose, copy in world.do(_mail, world.wires):
        wires = world.do(between.take, world.wires, message)
        yield deliver, _deliver(world, message, wires)
        if lossy is not None:
            yield lose, lossy.but(wires=wires)
        if copied is not None and copy is not None:
            yield copy, _deliver(copied, message, world.do(between.leave, world.wires, message))


def _mail(config: Config, wires: Wires) -> tuple[tuple[Envelope, Move, Move, Move | None], ...]:
    """Each message with the moves that it may be part of."""
    mail = [
        (m, Move("deliver", m), Move("lose", m), None if m in wires.copies else Move("deliver, copy stays", m))
        for m in wires.messages
    ]
    return tuple(sorted(mail, key=lambda each: str(each[1])))


def is_from_decode(envelope: Envelope) -> bool:
    return is_decode(envelope.sender)


def _deliver(world: World, message: Envelope, wires: Wires) -> World:
    """To whoever has its addressee's rank now: the machine asks whether its life is meant."""
    taken = world.but(wires=wires)
    if is_from_decode(message):
        k = message.to.rank
        return taken.worked(k, world.do(_hear, world.prefills[k], message))
    return taken.decided(world.do(_receive, world.decode, message))


def _hear(config: Config, side: prefill_side.PrefillSide, message: Envelope) -> prefill_side.PrefillStep:
    return prefill_side.feed(config, side, Heard(message))


def _receive(config: Config, side: decode_side.DecodeSide, message: Envelope) -> decode_side.DecodeStep:
    return decode_side.feed(config, side, Received(message))


# ---------------------------------------------------------------- writes


def _writes(world: World, faults: bool) -> Iterator[Step]:
    for flown in world.do(_flights, world.air):
        flight = flown.flight
        reported = flight.sender == world.prefills[flight.sender.rank].me
        if flown.state == "shut":
            yield Move("error of fenced write", flight), _settle(world, flown, Outcome.FAILED_IN_FLIGHT, reported)
            continue
        hears = reported and flown.state == "flying"
        yield Move("land", flight, flown.state), _settle(_land(world, flown), flown, Outcome.LANDED, hears)
        if faults and (torn := _paid(world, "torn")) is not None:
            yield Move("tear", flight, flown.state), _land(torn, flown, TORN)
        if flown.state == "unknown":
            yield Move("vanishes", flight), _settle(world, flown, Outcome.LANDED, False)
        elif faults and reported:
            yield from _failing(world, flown)


def _flights(config: Config, air: Air) -> tuple[Flown, ...]:
    return tuple(sorted(air.flights, key=lambda each: (each.order, each.flight.write)))


def _land(world: World, flown: Flown, digest: Digest | None = None) -> World:
    """What was in the source, or `digest`, is in the destination; memory of another life is another memory."""
    key, k = flown.flight.key, flown.flight.sender.rank
    if world.config.fresh and key.decode.incarnation != world.decode.machine.incarnation:
        return world
    content = Content(flown.content.tag, digest or _read(world, flown))
    rank = key.decode.rank
    if world.config.staged:
        place = (key.attempt, rank, flown.first, len(flown.pages), k, content)
        return world.but(decode=world.do(decode_side.stage, world.decode, *place))
    return world.but(decode=world.do(decode_side.place, world.decode, rank, flown.pages, k, content))


def _read(world: World, flown: Flown) -> Digest:
    """Whose context the write carries: that of whoever has its source pages by now, as long as it reads them."""
    side = world.prefills[flown.flight.sender.rank]
    if not flown.flight.reading or side.me != flown.flight.sender:
        return flown.content.digest
    holders = {prefill_side.holder_of(side, source) for source in flown.sources} - {flown.flight.request, ""}
    return next((each.digest for each in world.config.requests if each.id in holders), flown.content.digest)


def _settle(world: World, flown: Flown, outcome: Outcome, reported: bool) -> World:
    after = world.but(air=world.do(between.ended, world.air, flown))
    return _report(after, flown, outcome) if reported else after


def _report(world: World, flown: Flown, outcome: Outcome) -> World:
    k = flown.flight.sender.rank
    return world.worked(k, world.do(_settled, world.prefills[k], flown.flight.key, flown.flight.write, outcome))


def _settled(
    config: Config, side: prefill_side.PrefillSide, key: AttemptKey, write: int, outcome: Outcome
) -> prefill_side.PrefillStep:
    return prefill_side.feed(config, side, WriteSettled(key, write, outcome))


def _failing(world: World, flown: Flown) -> Iterator[Step]:
    if (failed := _paid(world, "fail")) is not None:
        after = failed.but(air=world.do(between.lost_from_sight, world.air, flown))
        yield Move("failed_in_flight", flown.flight), _report(after, flown, Outcome.FAILED_IN_FLIGHT)
    if (failed := _paid(world, "quiesced")) is not None:
        yield Move("failed_quiesced", flown.flight), _settle(failed, flown, Outcome.FAILED_QUIESCED, True)


# ---------------------------------------------------------------- lives and streams


def _at_peer(world: World, k: int) -> Iterator[Step]:
    if (paid := _paid(world, "cut")) is not None:
        yield Move("cut", k), _cut(paid, k)
    if (paid := _paid(world, "crash_p")) is not None:
        yield Move("crash prefill", k), _crash_prefill(paid, k)
    if (paid := _paid(world, "close")) is not None:
        yield Move("close endpoint", k), _close(paid, k)
    if (paid := _paid(world, "rumour")) is not None:
        yield Move("rumour", k), pull_moves.rumour(paid, k)


def _close(world: World, k: int) -> World:
    if world.config.pull:
        return pull_moves.close_lender(world, k)
    side = world.prefills[k]
    closed = world.but(air=world.do(between.blind, world.air, side.me))
    return closed.worked(k, world.do(prefill_side.close, side))


def _at_both(world: World) -> Iterator[Step]:
    if (paid := _paid(world, "crash_d")) is not None:
        yield Move("crash decode"), _crash_decode(paid)
    if (paid := _paid(world, "join")) is not None:
        yield Move("join, unasked"), pull_moves.join(paid)
    if (paid := _paid(world, "cancel")) is not None:
        for req in world.config.requests:
            if (cancelled := _cancel(paid, req.name)) is not None:
                yield Move("cancel", req.name), cancelled


def _decodes(world: World) -> list[Peer]:
    return [Peer(rank, world.decode.machine.incarnation) for rank in range(world.config.ranks)]


def _cut(world: World, k: int) -> World:
    """A stream is lost with what was under way on it; each side finds out in its own time."""
    side = world.prefills[k]
    lost = [DecodeLost(each) for each in _decodes(world)]
    after = world.with_prefill(k, world.do(prefill_side.told_of, side, *lost))
    decode = world.do(decode_side.told_of, world.decode, StreamLost(side.me))
    return after.but(wires=world.do(between.cut, world.wires, k), decode=decode)


def _crash_prefill(world: World, k: int) -> World:
    old, side = world.prefills[k].me, world.do(prefill_side.crash, world.prefills[k])
    decode = world.do(decode_side.meets, world.decode, old, side.me, StreamLost(old), PeerReplaced(old))
    air = world.air if world.config.pull else world.do(between.orphan, world.air, old)
    return world.with_prefill(k, side).but(air=air, decode=decode)


def _crash_decode(world: World) -> World:
    old = _decodes(world)
    facts: list[Any] = [DecodeReplaced(old[0]), *(DecodeLost(each) for each in old)]
    facts += [ReaderDead(each) for each in old if world.config.deaths]
    prefills = tuple(world.do(prefill_side.told_of, side, *facts) for side in world.prefills)
    air = world.do(reads.orphan, world.air, old[0].incarnation) if world.config.pull else world.air
    return world.but(decode=world.do(decode_side.crash, world.decode), prefills=prefills, air=air)


def _cancel(world: World, name: str) -> World | None:
    """The router tells both halves; each hears it in its own time. None if no half has the request."""
    mine = [each for each in world.decode.machine.attempts.values() if each.request == name]
    facts = [Abandon(each.attempt, CANCELLED_BY_ROUTER) for each in mine if each.phase in UNDER_WAY]
    after = world.but(decode=world.do(decode_side.told_of, world.decode, *facts)) if facts else world
    for k, side in enumerate(world.prefills):
        if name in side.machine.requests:
            ended = Ended(side.machine.requests[name].request, CANCELLED_BY_ROUTER)  # type: ignore[index]
            after = after.with_prefill(k, world.do(prefill_side.told_of, side, ended))
    return None if after is world else after


# ---------------------------------------------------------------- clocks


def clocks(world: World) -> list[tuple[int, Any, Any]]:
    """The clocks that run, as (where, subject, timer), in order."""
    mine = [(DECODE, *each) for each in world.decode.clocks]
    mine += [(k, *each) for k, side in enumerate(world.prefills) for each in side.clocks]
    return sorted(mine, key=repr)


def fire(world: World, clock: tuple[int, Any, Any]) -> World:
    where, *which = clock
    if where == DECODE:
        return world.decided(world.do(decode_side.fire, world.decode, tuple(which)))
    return world.worked(where, world.do(prefill_side.fire, world.prefills[where], tuple(which)))
