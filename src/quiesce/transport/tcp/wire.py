"""What travels on a data connection. All numbers are little-endian; every length is bounded before it is used.

::

    sender                                        receiver
      MAGIC, ticket (16), challenge s (32)     ->
                                               <-   challenge r (32), proof of s (32)
      proof of r (32)                          ->
                                               <-   MAGIC
    then, any number of times, without waiting for replies:
      header, words of metadata, runs, pages   ->
                                               <-   reply (number, verdict, reason)

In pull the puller connects and proves itself as a sender does, the lender as a receiver; then, one read at a time::

    puller                                        lender
      header without a slot, runs              ->
                                               <-   reply REFUSED, or reply COMING, pages, reply LANDED or REFUSED

The key of a ticket is derived from the pool's secret, which never travels; ticket and key go to one peer, inside the
descriptor, over the control stream. A proof is HMAC-SHA256 of who proves and both challenges, so neither side can be
made to answer for the other. All of it is inside TLS if the descriptor says so; else nothing is encrypted or signed.

Headers and replies are 64 bytes, a cache line, because pages follow them into the kernel's buffers: some processors
copy at a third of their speed to a place that lies up to 31 bytes further in its 4 KiB than the source in its own
(seen on AMD's EPYC of family 25: pages after a reply of 10 bytes, 8.3 ms for 16 MiB instead of 3.2). Nobody looks at
what fills them up.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import IntEnum

import msgspec

from quiesce.errors import BadFrame, HandshakeRefused
from quiesce.kv.storage import MAX_PAGES, MAX_SLOTS, METADATA_WORDS
from quiesce.transport.descriptors import Descriptor

MAGIC = b"quiesce1"
TICKET_BYTES = 16
CHALLENGE_BYTES = PROOF_BYTES = 32
MAX_REASON_BYTES = 255
NO_SLOT = 2**32 - 1

_HEADER = struct.Struct("<QQIII36x")  # number, tag, pages, runs, slot
_WORDS = struct.Struct(f"<{METADATA_WORDS}Q")
_REPLY = struct.Struct("<QBB54x")  # number, verdict, bytes of the reason
HEADER_BYTES, WORDS_BYTES, REPLY_BYTES = _HEADER.size, _WORDS.size, _REPLY.size
RUN_BYTES = 8


class Verdict(IntEnum):
    """The receiver's answer to one write: every byte is placed, or no more of it will be.

    Of one that was revoked midway a part may be there. The lender's to one read: the pages follow; what followed was
    taken while the window was open, all of it; or not.
    """

    LANDED = 1
    REFUSED = 2
    COMING = 3


class TcpDescriptor(Descriptor, frozen=True):
    """Where to connect and with what. `nonce` names this pool's life; `key` is the ticket's (32 bytes).

    `tls` says that whatever the connection carries, this handshake too, is inside mutual TLS 1.3.
    """

    nonce: str
    host: str
    port: int
    ticket: bytes
    key: bytes
    tls: bool

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536 or not 0 < len(self.host) <= 255:
            raise ValueError(f"the data address {self.host!r}:{self.port} cannot be")
        if len(self.ticket) != TICKET_BYTES or len(self.key) != PROOF_BYTES:
            raise ValueError("the ticket has the wrong length")


def require_same_way(described: TcpDescriptor, tls: bool) -> None:
    """Raises HandshakeRefused unless both sides mean TLS or neither does: nothing goes in plain instead."""
    if described.tls is not tls:
        theirs, ours = ("over TLS", "in plain") if described.tls else ("in plain", "over TLS")
        raise HandshakeRefused(
            f"who listens for pages has them {theirs}, who dials {ours}: "
            "give both --tls-cert, --tls-key and --tls-ca, or both --data-tls off"
        )


class Header(msgspec.Struct, frozen=True):
    """The begin of one write. `slot` is None when it carries no metadata."""

    number: int
    tag: int
    pages: int
    runs: int
    slot: int | None


def ticket_of(secret: bytes, peer: str) -> bytes:
    """The ticket of one life of a peer."""
    return hmac.digest(secret, b"peer" + peer.encode(), hashlib.sha256)[:TICKET_BYTES]


def key_of(secret: bytes, ticket: bytes) -> bytes:
    """The key that proves possession of `ticket`."""
    return hmac.digest(secret, b"ticket" + ticket, hashlib.sha256)


def proof(key: bytes, who: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(key, who + first + second, hashlib.sha256)


def is_proof(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(given, expected)


def encode_header(header: Header) -> bytes:
    slot = NO_SLOT if header.slot is None else header.slot
    return _HEADER.pack(header.number, header.tag, header.pages, header.runs, slot)


def decode_header(data: bytes) -> Header:
    """Raises BadFrame for counts that no write can have; the pool's bounds are checked by whoever knows the pool."""
    number, tag, pages, runs, slot = _HEADER.unpack(data)
    if pages > MAX_PAGES or runs > pages or (pages > 0) != (runs > 0):
        raise BadFrame(f"a write of {pages} pages in {runs} runs cannot be")
    if slot != NO_SLOT and slot >= MAX_SLOTS:
        raise BadFrame(f"{slot} is no metadata slot")
    return Header(number, tag, pages, runs, None if slot == NO_SLOT else slot)


def encode_words(words: tuple[int, ...]) -> bytes:
    return _WORDS.pack(*words)


def decode_words(data: bytes) -> tuple[int, ...]:
    return _WORDS.unpack(data)


def encode_reply(number: int, verdict: Verdict, reason: str) -> bytes:
    said = reason.encode()[:MAX_REASON_BYTES]
    return _REPLY.pack(number, verdict, len(said)) + said


def decode_reply(data: bytes) -> tuple[int, Verdict, int]:
    """Number, verdict and how many bytes of reason follow. Raises BadFrame for an unknown verdict."""
    number, verdict, n_bytes = _REPLY.unpack(data)
    try:
        return number, Verdict(verdict), n_bytes
    except ValueError as error:
        raise BadFrame(f"{verdict} is no verdict") from error
