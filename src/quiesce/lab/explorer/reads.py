"""Reads under way, in worlds where decode reads what prefill lends: the source is read first, then the bytes land."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from quiesce.ids import AttemptKey, Digest, Incarnation, PageTag, Peer, RequestId
from quiesce.lab.explorer.config import Config
from quiesce.protocol.invariants import Flight, pages_of
from quiesce.protocol.puller_io import LaunchRead

NONE: frozenset[Any] = frozenset()
UNREAD = Digest("")


class Fetch(msgspec.Struct, frozen=True, cache_hash=True):
    """A launched read. `state`: it is `known` to whoever launched it, or its fate is `unknown` to it, or that is dead.

    `flight` is its name: the lender is its `sender`, for that is where the bytes come from. `first` is its place in the
    lease, `sources` and `pages` from where and to where. `carries` is whose context was read, once it was.
    """

    flight: Flight
    first: int
    sources: tuple[int, ...]
    pages: tuple[int, ...]
    tag: PageTag
    digest: Digest
    carries: Digest = UNREAD
    state: str = "known"

    @property
    def order(self) -> Any:
        """Two of one world never agree in this, and it says nothing about how reads are numbered."""
        return (self.flight.key, self.flight.sender, self.first, self.pages, self.state, self.carries)


class Reads(msgspec.Struct, frozen=True, cache_hash=True):
    """Reads that are under way, and which windows are revoked: (lender, whom it lent to)."""

    flights: frozenset[Fetch] = NONE
    shut: frozenset[tuple[Peer, AttemptKey]] = NONE

    def is_shut(self, fetch: Fetch) -> bool:
        return (fetch.flight.sender, fetch.flight.key) in self.shut


def launch(config: Config, reads: Reads, launch: LaunchRead, life: Incarnation, request: RequestId) -> Reads:
    """Decode's `life` reads what was computed for `request`."""
    return replace(reads, flights=reads.flights | {_fetch(config, launch, life, request)})


def _fetch(config: Config, launch: LaunchRead, life: Incarnation, request: RequestId) -> Fetch:
    span = slice(launch.first_page, launch.first_page + launch.pages)
    digest = next(each.digest for each in config.requests if each.id == request)
    flight = Flight(launch.peer, AttemptKey(Peer(launch.decode_rank, life), launch.attempt), launch.read, request)
    sources, targets = pages_of(launch.source)[span], pages_of(launch.target)[span]
    return Fetch(flight, launch.first_page, sources, targets, launch.target.tag, digest)


def served(config: Config, reads: Reads, fetch: Fetch, carries: Digest) -> Reads:
    """The source is read; whatever becomes of it, this read is on its way."""
    now = replace(fetch, carries=carries, flight=replace(fetch.flight, reading=False))
    return replace(reads, flights=(reads.flights - {fetch}) | {now})


def ended(config: Config, reads: Reads, fetch: Fetch) -> Reads:
    return replace(reads, flights=reads.flights - {fetch})


def lost_from_sight(config: Config, reads: Reads, fetch: Fetch) -> Reads:
    """Decode was told that its fate is unknown; it may go on all the same."""
    return replace(reads, flights=(reads.flights - {fetch}) | {replace(fetch, state="unknown")})


def orphan(config: Config, reads: Reads, life: Incarnation) -> Reads:
    """Whoever launched them is dead: nobody will hear how they end."""
    mine = _of(reads, life)
    return replace(reads, flights=(reads.flights - mine).union(replace(each, state="unknown") for each in mine))


def join(config: Config, reads: Reads, life: Incarnation) -> Reads:
    """Decode's endpoint is closed and joined: nothing of it reads or lands any more."""
    return replace(reads, flights=reads.flights - _of(reads, life))


def _of(reads: Reads, life: Incarnation) -> frozenset[Fetch]:
    return frozenset(each for each in reads.flights if each.flight.key.decode.incarnation == life)


def revoke(config: Config, reads: Reads, lender: Peer, keys: tuple[AttemptKey, ...]) -> Reads:
    """A fact at the source: what was not read yet is not served any more."""
    return replace(reads, shut=reads.shut.union((lender, key) for key in keys))
