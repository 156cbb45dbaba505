"""PROTOCOL section 7 as functions over the real states: what explorer, simulator and tests check after every step.

Each takes a `Picture` of one decode life, its prefill ranks and everything under way between them, and returns what
is wrong, in words; nothing wrong is an empty tuple.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from quiesce.ids import Attempt, AttemptKey, Digest, PageTag, Peer, RequestId
from quiesce.protocol import receiver_rules, sender_rules
from quiesce.protocol.attempt import AnyState, AttemptState, Destination, Handoff, Phase
from quiesce.protocol.messages import AbortAck, Done, Envelope, Lease
from quiesce.protocol.receiver_io import Release
from quiesce.protocol.record import Record, SenderState

Broken = tuple[str, ...]

_RUN = struct.Struct("<II")


class Flight(msgspec.Struct, frozen=True, order=True):
    """A launched write that may still read its source or land; `write` was numbered by `sender`.

    `reading` ends when the sender's own endpoint is joined: bytes may be on their way then, but the source is free.
    """

    sender: Peer
    key: AttemptKey
    write: int
    request: RequestId
    reading: bool = True


class Picture(msgspec.Struct, frozen=True):
    """One moment. `flights` leaves out what a fence keeps from landing *and* from mattering."""

    receiver: AnyState
    senders: tuple[SenderState, ...]
    flights: frozenset[Flight] = frozenset()
    messages: frozenset[Envelope] = frozenset()


class Content(msgspec.Struct, frozen=True, order=True):
    """What lies in a page: the tag it was stamped with, and whose prompt the bytes came from."""

    tag: PageTag
    digest: Digest


class Cached(msgspec.Struct, frozen=True, order=True):
    """A page in a decode rank's prefix tree: which attempt it came with, and what it must hold."""

    decode_rank: int
    page: int
    attempt: Attempt
    content: Content


def pages_of(lease: Lease) -> tuple[int, ...]:
    """The pages of a lease, in prompt order."""
    runs = _RUN.iter_unpack(lease.runs)
    return tuple(page for first, count in runs for page in range(first, first + count))


def no_wild_write(picture: Picture) -> Broken:
    """A write in flight targets only pages its attempt still owns, and that nobody reads yet."""
    return tuple(f"no_wild_write: {flight}" for flight in picture.flights if not _is_expected(picture.receiver, flight))


def _is_expected(receiver: AnyState, flight: Flight) -> bool:
    """Memory is fresh in every life: a write for another one hits nothing here."""
    decode = flight.key.decode
    if decode.incarnation != receiver.incarnation:
        return True
    attempt = receiver.attempts.get(flight.key.attempt)
    if attempt is None or decode.rank in attempt.released or attempt.phase is Phase.COMMITTED:
        return False
    return receiver_rules.is_granted(attempt, flight.sender)


def no_alias(picture: Picture) -> Broken:
    """No page is owned by two attempts of one decode rank."""
    owned: Counter[tuple[int, int]] = Counter()
    for attempt in picture.receiver.attempts.values():
        for rank, lease in enumerate(attempt.leases):
            if rank not in attempt.released:
                owned.update((rank, page) for page in pages_of(lease))
    return tuple(f"no_alias: page {page} of rank {rank}" for (rank, page), owners in owned.items() if owners > 1)


def no_early_ack(picture: Picture) -> Broken:
    """A rank that acked, or said DONE, has nothing in flight for that attempt."""
    flying = {(flight.sender, flight.key) for flight in picture.flights}
    said = [m for m in picture.messages if isinstance(m.body, AbortAck | Done)]
    return tuple(f"no_early_ack: {m}" for m in said if (m.sender, AttemptKey(m.to, m.attempt)) in flying)


def no_wild_read(picture: Picture) -> Broken:
    """The source pages of a launched write are still held by its request."""
    held = {(sender.me, request) for sender in picture.senders for request in sender.requests}
    lives = {sender.me for sender in picture.senders}
    return tuple(
        f"no_wild_read: {flight}"
        for flight in picture.flights
        if flight.reading and flight.sender in lives and (flight.sender, flight.request) not in held
    )


def no_leak(picture: Picture, unprovable: frozenset[Peer] = frozenset()) -> Broken:
    """When the system is quiet, nothing is held except quarantine that awaits a named proof.

    A proof is named when the rank's record is poisoned, or the rank's life is over (`unprovable`).
    """
    return (*_held_at_decode(picture, unprovable), *_held_at_prefill(picture))


def _held_at_decode(picture: Picture, unprovable: frozenset[Peer]) -> Broken:
    senders = {sender.me: sender for sender in picture.senders}
    wrong = []
    for number, attempt in sorted(picture.receiver.attempts.items()):
        for each in receiver_rules.unproved(attempt):
            named = each.peer in unprovable or _is_poisoned_at(senders.get(each.peer), picture.receiver, attempt, each)
            if not named or attempt.phase not in (Phase.QUARANTINED, Phase.RELEASED):
                wrong.append(f"no_leak: attempt {number} is {attempt.phase} for {each.peer}")
        if not receiver_rules.unproved(attempt):
            wrong.append(f"no_leak: attempt {number} is {attempt.phase} although it is proved")
    return tuple(wrong)


def _is_poisoned_at(sender: SenderState | None, receiver: AnyState, attempt: AttemptState, there: Destination) -> bool:
    key = AttemptKey(Peer(there.decode_rank, receiver.incarnation), attempt.attempt)
    record = None if sender is None else sender.records.get(key)
    return record is not None and record.poisoned


def _held_at_prefill(picture: Picture) -> Broken:
    """A request stays only while a poisoned write of it may read its source; a record only as a tombstone."""
    wrong: list[str] = []
    for sender in picture.senders:
        records = list(sender.records.values())
        named = {record.request for record in records if _awaits_fence(picture.receiver, record)}
        wrong += [f"no_leak: {sender.me} holds the source of {each}" for each in sender.requests if each not in named]
        wrong += [f"no_leak: {sender.me} has {record.key} {record.phase}" for record in records if _lingers(record)]
    return tuple(wrong)


def _awaits_fence(receiver: AnyState, record: Record) -> bool:
    """Poisoned, and decode has no proof either (or its life is over and can prove nothing to us any more)."""
    gone = record.key.decode.incarnation != receiver.incarnation
    return record.poisoned and (gone or record.key.attempt in receiver.attempts)


def _lingers(record: Record) -> bool:
    return not record.poisoned and (bool(record.outstanding) or sender_rules.is_active(record))


def once(releases: Iterable[Release]) -> Broken:
    """Each lease is released once."""
    seen = Counter((release.attempt, release.decode_rank) for release in releases)
    return tuple(f"once: attempt {a}, rank {rank}: {n} times" for (a, rank), n in seen.items() if n > 1)


def no_stub(picture: Picture, rejected: Iterable[RequestId]) -> Broken:
    """A rejected request has created no state."""
    known = {attempt.request for attempt in picture.receiver.attempts.values()}
    known.update(request for sender in picture.senders for request in sender.requests)
    return tuple(f"no_stub: {request}" for request in rejected if request in known)


def read_own(attempt: Handoff, contents: Mapping[tuple[int, int], Content]) -> Broken:
    """Every page that decode is about to attend holds its own request's context; keys are (decode rank, page)."""
    wrong = []
    for rank, lease in enumerate(attempt.leases):
        own = Content(lease.tag, attempt.digest)
        wrong += [
            f"read_own: page {page} of rank {rank}" for page in pages_of(lease) if contents.get((rank, page)) != own
        ]
    return tuple(wrong)


def no_poison(receiver: AnyState, cached: Iterable[Cached], contents: Mapping[tuple[int, int], Content]) -> Broken:
    """No quarantined or unverified page is in a prefix tree, nor one that a hand-off under way may write.

    A page came with an attempt that committed (one that is over and was cached did), holds what it held then, and is in
    no other lease.
    """
    leased = {
        (rank, page): number
        for number, attempt in receiver.attempts.items()
        for rank, lease in enumerate(attempt.leases)
        if rank not in attempt.released
        for page in pages_of(lease)
    }
    wrong = []
    for each in cached:
        attempt = receiver.attempts.get(each.attempt)
        place = (each.decode_rank, each.page)
        if attempt is not None and attempt.phase is not Phase.COMMITTED:
            wrong.append(f"no_poison: page {each.page} of attempt {each.attempt}, which is {attempt.phase}")
        elif contents.get(place) != each.content:
            wrong.append(f"no_poison: page {each.page} of rank {each.decode_rank} is not what was verified")
        elif leased.get(place, each.attempt) != each.attempt:
            wrong.append(f"no_poison: page {each.page} of rank {each.decode_rank} is leased to {leased[place]}")
    return tuple(wrong)


def broken(picture: Picture) -> Broken:
    """What must hold in every state, at once."""
    return (
        *no_wild_write(picture),
        *no_alias(picture),
        *no_early_ack(picture),
        *no_wild_read(picture),
    )
