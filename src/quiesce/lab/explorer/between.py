"""What is between the sides of a world: messages on wires, writes in the air."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from quiesce.ids import Attempt, AttemptKey, Peer
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.lives import is_decode
from quiesce.protocol.invariants import Content, Flight, pages_of
from quiesce.protocol.messages import Envelope
from quiesce.protocol.sender_io import Launch

NONE: frozenset[Any] = frozenset()


class Wires(msgspec.Struct, frozen=True, cache_hash=True):
    """Messages that are not delivered, in no order: any may be next. `copies` are those that were delivered before."""

    messages: frozenset[Envelope] = NONE
    copies: frozenset[Envelope] = NONE


def send(config: Config, wires: Wires, sends: tuple[Envelope, ...]) -> Wires:
    return Wires(wires.messages.union(sends), wires.copies)


def take(config: Config, wires: Wires, message: Envelope) -> Wires:
    """It is delivered or lost."""
    return Wires(wires.messages - {message}, wires.copies - {message})


def leave(config: Config, wires: Wires, message: Envelope) -> Wires:
    """It is delivered, and once more later: an older stream's buffer has it too."""
    return Wires(wires.messages, wires.copies | {message})


def cut(config: Config, wires: Wires, rank: int) -> Wires:
    """The stream to a prefill rank is lost with everything on it."""
    return Wires(frozenset(each for each in wires.messages if prefill_of(each).rank != rank), wires.copies)


def prefill_of(message: Envelope) -> Peer:
    return message.to if is_decode(message.sender) else message.sender


# ---------------------------------------------------------------- writes


class Flown(msgspec.Struct, frozen=True, cache_hash=True):
    """A launched write. `state`: it is `flying`; its fate is `unknown` to its writer, or its writer is dead; a fence
    has `shut` it out. `first` is its place in the lease, `sources` what it reads, when source pages are counted.
    """

    flight: Flight
    first: int
    pages: tuple[int, ...]
    content: Content
    state: str
    sources: tuple[int, ...] = ()

    @property
    def order(self) -> Any:
        """Two of one world never agree in this, and it says nothing about how writes are numbered."""
        return (self.flight.sender, self.flight.key, self.first, self.pages, self.state, self.flight.request)


class Air(msgspec.Struct, frozen=True, cache_hash=True):
    """Writes that are under way, and whose writes a fence keeps out."""

    flights: frozenset[Flown] = NONE
    shut: frozenset[tuple[Peer, AttemptKey]] = NONE


def launch(config: Config, air: Air, me: Peer, launches: tuple[tuple[Launch, tuple[int, ...]], ...]) -> Air:
    flights = {_flown(config, air, me, each, sources) for each, sources in launches}
    return replace(air, flights=air.flights | flights)


def _flown(config: Config, air: Air, me: Peer, launch: Launch, sources: tuple[int, ...]) -> Flown:
    span = pages_of(launch.lease)[launch.first_page : launch.first_page + launch.pages]
    digest = next(each.digest for each in config.requests if each.id == launch.request)
    flight = Flight(me, launch.key, launch.write, launch.request)
    state = "shut" if (me, launch.key) in air.shut else "flying"
    return Flown(flight, launch.first_page, span, Content(launch.lease.tag, digest), state, sources)


def ended(config: Config, air: Air, flown: Flown) -> Air:
    return replace(air, flights=air.flights - {flown})


def lost_from_sight(config: Config, air: Air, flown: Flown) -> Air:
    """Its writer was told that it failed; it may land all the same."""
    return replace(air, flights=(air.flights - {flown}) | {replace(flown, state="unknown")})


def fence(config: Config, air: Air, number: Attempt, peer: Peer, me: Peer) -> Air:
    """The receiver keeps these writes out from now on, whatever their writer does."""
    keys = {AttemptKey(Peer(rank, me.incarnation), number) for rank in range(config.ranks)}
    hit = {each for each in air.flights if each.flight.sender == peer and each.flight.key in keys}
    still = {replace(each, state="shut") for each in hit if each.state == "flying"}
    return Air((air.flights - hit) | still, air.shut.union((peer, key) for key in keys))


def orphan(config: Config, air: Air, old: Peer) -> Air:
    """Their writer died: nobody will hear how they end."""
    mine = {each for each in air.flights if each.flight.sender == old}
    still = {replace(each, state="unknown") for each in mine if each.state != "shut"}
    return replace(air, flights=(air.flights - mine) | still)


def blind(config: Config, air: Air, me: Peer) -> Air:
    """Their writer's endpoint is closed: nothing reads its sources any more, but bytes may be on their way."""
    mine = {each for each in air.flights if each.flight.sender == me}
    read = {replace(each, flight=replace(each.flight, reading=False)) for each in mine}
    return replace(air, flights=(air.flights - mine) | read)
