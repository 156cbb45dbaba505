"""Envelopes as bytes: msgpack maps of named fields, the body a tagged union. Nothing from the network is trusted.

Version history (HELLO carries the number, `hello.PROTOCOL_VERSION`; workers of different versions refuse each other):

1   first version: publish, bound, done, committed, fail, abort, abort_ack, fenced; open attempts on every message
    from decode.
2   DONE carries the first token's log probabilities, when the request asked for them.
3   PUBLISH's `held_tokens` is honoured: leases have no page for them. DONE carries `cached_tokens`.
    PROGRESS: a prompt that is computed for long is told from a prefill worker that is frozen.
4   ASK and OFFER: decode may read from prefill instead (pull). Then ABORT and ABORT_ACK go the other way.
5   Headers and replies of `tcp`'s data connections are 64 bytes; nothing here changed.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import msgspec

from quiesce.errors import BadFrame
from quiesce.ids import Peer
from quiesce.protocol.logprobs import problem_with
from quiesce.protocol.messages import (
    AbortAck,
    Ask,
    Body,
    Bound,
    Committed,
    Done,
    Envelope,
    Fail,
    Failure,
    Fenced,
    Lease,
    Offer,
    OpenAttempts,
    Progress,
    Publish,
)

MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_RUNS_BYTES = 8 * 1024 * 1024
RUN_BYTES = 8
MAX_RANK = 65_535
MAX_ATTEMPT = 2**63 - 1
MAX_ROOM = 2**63 - 1
MAX_TAG = 2**64 - 1
MAX_COUNT = 2**32 - 1
MAX_TOKENS = 2**31 - 1
MAX_OPEN_LISTED = 65_536
MAX_LAYER_GROUPS = 4_096
MAX_CODE_CHARS = 64
MAX_MESSAGE_CHARS = 4_096

_HEX_128 = re.compile(r"[0-9a-f]{32}")
_PAYLOAD_DIGEST = re.compile(r"(?:[0-9a-f]{32,128})?")
_CODE = re.compile(r"[a-z][a-z0-9_]*")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    """One frame's payload."""
    return _encoder.encode(envelope)


def decode(data: bytes) -> Envelope:
    """The envelope in `data`, every field within its bounds. Raises BadFrame."""
    if len(data) > MAX_FRAME_BYTES:
        raise BadFrame(f"a protocol message of {len(data)} bytes is too large")
    try:
        envelope = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not a protocol message: {error}") from error
    _check_envelope(envelope)
    return envelope


def _demand(holds: bool, field: str, value: Any) -> None:
    if not holds:
        raise BadFrame(f"{field} is out of bounds: {str(value)[:80]!r}")


def _check_range(field: str, value: int, least: int, most: int) -> None:
    _demand(least <= value <= most, field, value)


def _check_envelope(envelope: Envelope) -> None:
    _check_peer("sender", envelope.sender)
    _check_peer("to", envelope.to)
    _check_range("attempt", envelope.attempt, 1, MAX_ATTEMPT)
    _check_direction(envelope)
    if envelope.open_attempts is not None:
        _check_open(envelope.open_attempts)
    _check_body(envelope.body)


def _check_direction(envelope: Envelope) -> None:
    """Rule 9: every message from decode says which attempts are open; prefill has none to speak of."""
    match envelope.body:
        case Publish() | Ask() | Committed() | Fenced():
            _demand(envelope.open_attempts is not None, "open_attempts", None)
        case Bound() | Progress() | Done() | Offer():
            _demand(envelope.open_attempts is None, "open_attempts", "present")
        case _:  # FAIL goes both ways; ABORT and ABORT_ACK go one way in push and the other in pull
            pass


def _check_peer(field: str, peer: Peer) -> None:
    _check_range(f"{field}.rank", peer.rank, 0, MAX_RANK)
    _demand(_HEX_128.fullmatch(peer.incarnation) is not None, f"{field}.incarnation", peer.incarnation)


def _check_open(told: OpenAttempts) -> None:
    _check_range("open_attempts.watermark", told.watermark, 1, MAX_ATTEMPT)
    _check_range("len(open_attempts.below)", len(told.below), 0, MAX_OPEN_LISTED)
    edges = (0, *told.below, told.watermark)
    rising = all(low < high for low, high in pairwise(edges))
    _demand(rising, "open_attempts.below", "not rising from 1 to the watermark")


def _check_body(body: Body) -> None:
    match body:
        case Publish():
            _check_publish(body)
        case Ask():
            _check_prompt(body)
        case Done():
            _check_done(body)
        case Offer():
            _check_offer(body)
        case Fail(failure=failure):
            check_failure(failure)
        case AbortAck(outstanding=outstanding):
            _check_range("outstanding", outstanding, 0, 0)
        case _:  # the others carry nothing
            pass


def _check_publish(body: Publish) -> None:
    _check_prompt(body)
    _check_lease(body.lease)


def _check_prompt(body: Publish | Ask) -> None:
    _check_range("room", body.room, 0, MAX_ROOM)
    _check_digest(body.digest)
    _check_range("prompt_tokens", body.prompt_tokens, 1, MAX_TOKENS)
    _check_range("held_tokens", body.held_tokens, 0, body.prompt_tokens - 1)


def _check_digest(digest: str) -> None:
    _demand(_HEX_128.fullmatch(digest) is not None, "digest", digest)


def _check_lease(lease: Lease) -> None:
    _check_range("lease.tag", lease.tag, 1, MAX_TAG)
    _check_range("lease.pages", lease.pages, 1, MAX_COUNT)
    _check_range("lease.metadata_slot", lease.metadata_slot, 0, MAX_COUNT)
    _check_range("len(lease.runs)", len(lease.runs), RUN_BYTES, MAX_RUNS_BYTES)
    _check_range("len(lease.runs) % 8", len(lease.runs) % RUN_BYTES, 0, 0)


def _check_done(body: Done) -> None:
    _check_result(body)
    _check_range("len(pages_written)", len(body.pages_written), 1, MAX_LAYER_GROUPS)
    for pages in body.pages_written:
        _check_range("pages_written", pages, 0, MAX_COUNT)


def _check_offer(body: Offer) -> None:
    _check_result(body)
    _check_lease(body.lease)
    _check_range("lease.metadata_slot", body.lease.metadata_slot, 0, 0)


def _check_result(body: Done | Offer) -> None:
    """What prefill made of the prompt."""
    _check_digest(body.digest)
    _demand(_PAYLOAD_DIGEST.fullmatch(body.payload_digest) is not None, "payload_digest", body.payload_digest)
    _check_range("first_token", body.first_token, 0, MAX_COUNT)
    _check_range("cached_tokens", body.cached_tokens, 0, MAX_TOKENS)
    if body.first_logprobs is not None:
        problem = problem_with(body.first_logprobs, MAX_COUNT)
        _demand(not problem, "first_logprobs", problem)


def check_failure(failure: Failure) -> None:
    """Bounds of a `Failure` from the network, the same in dispatch frames: workers pass them on. Raises BadFrame."""
    _demand(len(failure.code) <= MAX_CODE_CHARS and bool(_CODE.fullmatch(failure.code)), "code", failure.code)
    _check_range("len(message)", len(failure.message), 0, MAX_MESSAGE_CHARS)
    _check_range("status", failure.status, 200, 599)
