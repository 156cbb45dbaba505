"""What can happen next in a world where decode reads: to reads, to windows, to decode's endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from quiesce.ids import Attempt, AttemptKey, Digest, Peer
from quiesce.lab.explorer import decode_side, prefill_side, reads
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.decode_side import TORN
from quiesce.lab.explorer.move import Move
from quiesce.lab.explorer.reads import Fetch, Reads
from quiesce.lab.explorer.world import World
from quiesce.protocol import sender_rules
from quiesce.protocol.invariants import Content
from quiesce.protocol.puller_io import EndpointClosed, ReadSettled
from quiesce.protocol.sender_io import DecodeReplaced, Outcome

Step = tuple[Move, World]
Pay = Callable[[str], "World | None"]
"""The same world with one fault less of a kind to come; None if there is none of it left."""


def of_reads(world: World, pay: Pay) -> Iterator[Step]:
    for fetch in world.do(_in_order, world.air):
        hears = fetch.state == "known" and _is_ours(world, fetch)
        yield from _served(world, fetch, hears)
        if fetch.carries:
            yield Move("land", fetch), _settle(_land(world, fetch), fetch, Outcome.LANDED, hears)
            if (torn := pay("torn")) is not None:
                yield Move("tear", fetch), _land(torn, fetch, TORN)
        if fetch.state == "unknown":
            yield Move("vanishes", fetch), _settle(world, fetch, Outcome.LANDED, False)
        elif hears:
            yield from _failing(world, fetch, pay)


def _in_order(config: Config, air: Reads) -> tuple[Fetch, ...]:
    return tuple(sorted(air.flights, key=lambda each: (each.order, each.flight.write)))


def _is_ours(world: World, fetch: Fetch) -> bool:
    """Whoever launched it lives."""
    return fetch.flight.key.decode.incarnation == world.decode.machine.incarnation


def _served(world: World, fetch: Fetch, hears: bool) -> Iterator[Step]:
    """Its source is read, whatever it holds by now; a revoked window and a dead lender refuse."""
    if fetch.carries:
        return
    is_shut = world.air.is_shut(fetch)
    if not is_shut or not world.config.refuses:
        read = world.do(reads.served, world.air, fetch, _read(world, fetch))
        yield Move("serve", fetch), world.but(air=read)
    if is_shut or world.prefills[fetch.flight.sender.rank].me != fetch.flight.sender:
        yield Move("refuse", fetch), _settle(world, fetch, Outcome.FAILED_QUIESCED, hears)


def _read(world: World, fetch: Fetch) -> Digest:
    """Whose context the read finds: that of whoever has its source pages by now. Memory of an earlier life stays."""
    side = world.prefills[fetch.flight.sender.rank]
    if side.me != fetch.flight.sender and world.config.fresh:
        return fetch.digest
    holders = {prefill_side.holder_of(side, source) for source in fetch.sources} - {fetch.flight.request, ""}
    return next((each.digest for each in world.config.requests if each.id in holders), fetch.digest)


def _land(world: World, fetch: Fetch, digest: Digest | None = None) -> World:
    """What was read, or `digest`, is in decode's page, and its tag; memory of another life is another memory."""
    if world.config.fresh and not _is_ours(world, fetch):
        return world
    place = (fetch.flight.key.decode.rank, fetch.pages, fetch.flight.sender.rank)
    content = Content(fetch.tag, digest or fetch.carries)
    return world.but(decode=world.do(decode_side.place, world.decode, *place, content))


def _settle(world: World, fetch: Fetch, outcome: Outcome, hears: bool) -> World:
    after = world.but(air=world.do(reads.ended, world.air, fetch))
    return _report(after, fetch, outcome) if hears else after


def _report(world: World, fetch: Fetch, outcome: Outcome) -> World:
    return world.decided(world.do(_settled, world.decode, fetch.flight.key.attempt, fetch.flight.write, outcome))


def _settled(
    config: Config, side: decode_side.DecodeSide, attempt: Attempt, read: int, outcome: Outcome
) -> decode_side.DecodeStep:
    return decode_side.feed(config, side, ReadSettled(attempt, read, outcome))


def _failing(world: World, fetch: Fetch, pay: Pay) -> Iterator[Step]:
    if (failed := pay("fail")) is not None:
        after = failed.but(air=world.do(reads.lost_from_sight, world.air, fetch))
        yield Move("failed_in_flight", fetch), _report(after, fetch, Outcome.FAILED_IN_FLIGHT)
    if (failed := pay("quiesced")) is not None:
        yield Move("failed_quiesced", fetch), _settle(failed, fetch, Outcome.FAILED_QUIESCED, True)


# ---------------------------------------------------------------- windows and endpoints


def of_windows(world: World, k: int) -> Iterator[Step]:
    """The backend revokes what it was asked to revoke, if it can."""
    side = world.prefills[k]
    for key in sorted(side.revoking):
        yield Move("revoke", side.me, key), _revoked(world, k, (key,))


def _revoked(world: World, k: int, keys: tuple[AttemptKey, ...]) -> World:
    side = world.prefills[k]
    after = world.but(air=world.do(reads.revoke, world.air, side.me, keys))
    return after.worked(k, world.do(prefill_side.revoke, side, *keys))


def close_lender(world: World, k: int) -> World:
    """Prefill closes its endpoint: every window is revoked, and nothing more arrives."""
    side = world.do(prefill_side.deaf, world.prefills[k])
    records = sorted(side.machine.records.items())
    return _revoked(world.with_prefill(k, side), k, tuple(key for key, each in records if sender_rules.is_lent(each)))


def join(world: World) -> World:
    """Decode closes and joins its own endpoint."""
    after = world.but(air=world.do(reads.join, world.air, world.decode.machine.incarnation))
    return after.decided(world.do(_joined, world.decode))


def _joined(config: Config, side: decode_side.DecodeSide) -> decode_side.DecodeStep:
    return decode_side.feed(config, decode_side.nothing_asked(side), EndpointClosed())


def rumour(world: World, k: int) -> World:
    """A prefill rank is told that another life took decode's place, while this one lives on."""
    told: Any = DecodeReplaced(Peer(0, world.decode.machine.incarnation))
    return world.with_prefill(k, world.do(prefill_side.told_of, world.prefills[k], told))
