"""Who is who. None of these is ever chosen by a client (PROTOCOL: Identity)."""

from __future__ import annotations

import secrets
from typing import NewType

import msgspec

Incarnation = NewType("Incarnation", str)
"""Which life of a worker process: 128 random bits as 32 hex digits, minted at start."""

Room = NewType("Room", int)
"""63 random bits, fresh per try: a hint that lets two halves meet, never an identity."""

Attempt = NewType("Attempt", int)
"""The identity of a hand-off, monotone from 1 within one decode incarnation."""

PageTag = NewType("PageTag", int)
"""Which allocation of a physical page: 64 bits, monotone from a random start, never 0 (0 = nobody)."""

RequestId = NewType("RequestId", str)
"""Minted by the router for each try of a request."""

Digest = NewType("Digest", str)
"""A 128-bit blake2b digest as 32 hex digits."""


class Peer(msgspec.Struct, frozen=True, order=True):
    """One rank of a worker in one life."""

    rank: int
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.rank}@{self.incarnation[:8]}"


class AttemptKey(msgspec.Struct, frozen=True, order=True):
    """What a sender knows an attempt by: the decode rank and life that minted it, and its number."""

    decode: Peer
    attempt: Attempt


def mint_incarnation() -> Incarnation:
    return Incarnation(secrets.token_hex(16))


def mint_room() -> Room:
    return Room(secrets.randbits(63))


def mint_request_id() -> RequestId:
    return RequestId(f"req-{secrets.token_hex(12)}")


def mint_first_tag() -> PageTag:
    """A random start for page tags; 62 bits, so that counting up never wraps a uint64 nor reaches 0."""
    return PageTag(secrets.randbits(62) + 1)
