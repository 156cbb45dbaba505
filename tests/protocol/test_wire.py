"""Envelopes survive the wire; anything else is refused with BadFrame and no other error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.errors import BadFrame
from quiesce.ids import Attempt, Digest, Incarnation, PageTag, Peer, Room
from quiesce.protocol import wire
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import (
    Abort,
    AbortAck,
    Ask,
    Body,
    Bound,
    Committed,
    Done,
    Envelope,
    Fail,
    Failure,
    Fault,
    Fenced,
    Lease,
    Offer,
    OpenAttempts,
    Progress,
    Publish,
)
from tests.protocol.scene import D0, DONE, GONE, ONE, P0, publish

steady = settings(derandomize=True, deadline=None)
hex128 = st.text("0123456789abcdef", min_size=32, max_size=32)
digests = hex128.map(Digest)
peers = st.builds(Peer, st.integers(0, wire.MAX_RANK), hex128.map(Incarnation))
tokens = st.integers(1, wire.MAX_TOKENS)
counts = st.integers(0, wire.MAX_COUNT)
leases = st.builds(
    Lease,
    st.integers(1, wire.MAX_TAG).map(PageTag),
    st.integers(1, wire.MAX_COUNT),
    st.binary(min_size=8, max_size=8).map(lambda run: run * 3),
    counts,
)
failures = st.builds(
    Failure,
    st.from_regex(r"\A[a-z][a-z0-9_]{0,40}\Z"),
    st.text(max_size=60),
    st.sampled_from(Fault),
    st.integers(400, 599),
)
rooms = st.integers(0, wire.MAX_ROOM).map(Room)
logprobs = (
    st.none() | st.builds(TokenLogprobs, st.floats(-9999, 0)) | st.just(TokenLogprobs(-1.0, (4, 2), (-0.5, -2.0)))
)
lent = leases.map(lambda lease: msgspec.structs.replace(lease, metadata_slot=0))
from_decode = st.one_of(
    st.builds(Publish, rooms, digests, leases, tokens, st.just(0)),
    st.builds(Ask, rooms, digests, tokens, st.just(0)),
    st.sampled_from([Committed(), Abort(), AbortAck(), Fenced()]),
)
from_prefill = st.one_of(
    st.builds(
        Done,
        digests,
        st.lists(counts, min_size=1, max_size=4).map(tuple),
        st.just("") | hex128,
        counts,
        logprobs,
    ),
    st.builds(Offer, digests, lent, st.just("") | hex128, counts, logprobs, tokens),
    st.sampled_from([Bound(), Progress(), Abort(), AbortAck()]),
)
fails = st.builds(Fail, failures, st.booleans())
attempts = st.integers(1, wire.MAX_ATTEMPT - 1).map(Attempt)


@st.composite
def open_attempts(draw: Any) -> OpenAttempts:
    numbers = sorted(draw(st.sets(st.integers(1, 10_000), min_size=1, max_size=20)))
    return OpenAttempts(numbers[-1], tuple(numbers[:-1]))


envelopes = st.one_of(
    st.builds(Envelope, peers, peers, attempts, from_decode | fails, open_attempts()),
    st.builds(Envelope, peers, peers, attempts, from_prefill | fails, st.none()),
)
STILL = OpenAttempts(Attempt(2), (ONE,))


def said(body: Body, still: OpenAttempts | None = None, **changed: Any) -> Envelope:
    return msgspec.structs.replace(Envelope(D0, P0, ONE, body, still), **changed)


@steady
@given(envelopes)
def test_round_trip(envelope: Envelope) -> None:
    assert wire.decode(wire.encode(envelope)) == envelope


@steady
@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        wire.decode(data)


@steady
@given(envelopes, st.data())
def test_a_damaged_envelope_is_refused_or_still_in_bounds(envelope: Envelope, data: st.DataObject) -> None:
    frame = bytearray(wire.encode(envelope))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        survived = wire.decode(bytes(frame))
    except BadFrame:
        return
    assert wire.decode(wire.encode(survived)) == survived


@steady
@given(st.recursive(st.none() | st.booleans() | st.integers(0, 2**63) | st.text(max_size=8), st.lists, max_leaves=8))
def test_any_other_msgpack_is_refused(value: Any) -> None:
    with pytest.raises(BadFrame):
        wire.decode(msgspec.msgpack.encode(value))


def lease_with(**changed: Any) -> Publish:
    told = publish()
    return msgspec.structs.replace(told, lease=msgspec.structs.replace(told.lease, **changed))


def publish_with(**changed: Any) -> Publish:
    return msgspec.structs.replace(publish(), **changed)


ASK = Ask(publish().room, publish().digest, 8)
OFFER = Offer(publish().digest, publish().lease, "", 5)


def ask_with(**changed: Any) -> Ask:
    return msgspec.structs.replace(ASK, **changed)


def offer_with(**changed: Any) -> Offer:
    return msgspec.structs.replace(OFFER, **changed)


def done_with(**changed: Any) -> Done:
    return msgspec.structs.replace(DONE, **changed)


OUT_OF_BOUNDS = {
    "rank": said(Bound(), sender=Peer(-1, D0.incarnation)),
    "rank too large": said(Bound(), to=Peer(wire.MAX_RANK + 1, D0.incarnation)),
    "incarnation short": said(Bound(), sender=Peer(0, Incarnation("abc"))),
    "incarnation upper case": said(Bound(), sender=Peer(0, Incarnation("A" * 32))),
    "incarnation with newline": said(Bound(), sender=Peer(0, Incarnation("a" * 32 + "\n"))),
    "attempt 0": said(Bound(), attempt=Attempt(0)),
    "attempt too large": said(Bound(), attempt=Attempt(2**63)),
    "committed without open attempts": said(Committed()),
    "ask without open attempts": said(ASK),
    "done with open attempts": said(DONE, STILL),
    "offer with open attempts": said(OFFER, STILL),
    "watermark 0": said(Abort(), OpenAttempts(Attempt(0))),
    "open at the watermark": said(Abort(), OpenAttempts(Attempt(2), (Attempt(2),))),
    "open attempt 0": said(Abort(), OpenAttempts(Attempt(2), (Attempt(0),))),
    "open not sorted": said(Abort(), OpenAttempts(Attempt(5), (Attempt(3), Attempt(2)))),
    "open twice": said(Abort(), OpenAttempts(Attempt(5), (Attempt(3), Attempt(3)))),
    "too many open": said(Abort(), OpenAttempts(Attempt(10**6), tuple(map(Attempt, range(1, 65_538))))),
    "room": said(publish_with(room=Room(-1)), STILL),
    "room too large": said(publish_with(room=Room(2**63)), STILL),
    "digest": said(publish_with(digest=Digest("xyz")), STILL),
    "no prompt": said(publish_with(prompt_tokens=0), STILL),
    "all held": said(publish_with(prompt_tokens=8, held_tokens=8), STILL),
    "tag 0": said(lease_with(tag=PageTag(0)), STILL),
    "no pages": said(lease_with(pages=0), STILL),
    "slot": said(lease_with(metadata_slot=-1), STILL),
    "no runs": said(lease_with(runs=b""), STILL),
    "half a run": said(lease_with(runs=b"\0" * 12), STILL),
    "runs too long": said(lease_with(runs=bytes(wire.MAX_RUNS_BYTES + 8)), STILL),
    "ask room": said(ask_with(room=Room(-1)), STILL),
    "ask digest": said(ask_with(digest=Digest("xyz")), STILL),
    "ask for no prompt": said(ask_with(prompt_tokens=0), STILL),
    "ask with all held": said(ask_with(prompt_tokens=8, held_tokens=8), STILL),
    "offer digest": said(offer_with(digest=Digest("A" * 32))),
    "offer of no pages": said(offer_with(lease=msgspec.structs.replace(OFFER.lease, pages=0))),
    "offer without window": said(offer_with(lease=msgspec.structs.replace(OFFER.lease, tag=PageTag(0)))),
    "offer with a slot": said(offer_with(lease=msgspec.structs.replace(OFFER.lease, metadata_slot=1))),
    "offer without token": said(offer_with(first_token=-1)),
    "offer payload digest": said(offer_with(payload_digest="no hex")),
    "done digest": said(done_with(digest=Digest("A" * 32))),
    "payload digest": said(done_with(payload_digest="no hex")),
    "first token": said(done_with(first_token=-1)),
    "first logprobs": said(done_with(first_logprobs=TokenLogprobs(0.5))),
    "no page counts": said(done_with(pages_written=())),
    "page count": said(done_with(pages_written=(-1,))),
    "ack that admits writes": said(AbortAck(outstanding=1)),
    "code": said(Fail(msgspec.structs.replace(GONE, code="Not A Code"))),
    "long code": said(Fail(msgspec.structs.replace(GONE, code="c" * 65))),
    "long message": said(Fail(msgspec.structs.replace(GONE, message="m" * 4_097))),
    "status": said(Fail(msgspec.structs.replace(GONE, status=199))),
}


@pytest.mark.parametrize("envelope", OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS.keys())
def test_out_of_bounds_is_refused(envelope: Envelope) -> None:
    with pytest.raises(BadFrame, match="out of bounds"):
        wire.decode(wire.encode(envelope))


@pytest.mark.parametrize("body", [Fail(GONE), Bound(), DONE, OFFER, Abort(), AbortAck()])
def test_what_prefill_says_needs_no_open_attempts(body: Body) -> None:
    assert wire.decode(wire.encode(said(body))).body == body


def test_a_frame_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(BadFrame, match="too large"):
        wire.decode(bytes(wire.MAX_FRAME_BYTES + 1))


def test_version_one_stays_readable() -> None:
    """The bytes of an ABORT as version 1 wrote them: a change of these is a change of the protocol's version."""
    frame = (
        b"\x86\xa4type\xa8envelope\xa6sender\x82\xa4rank\x00\xabincarnation\xd9\x20"
        + (b"d" * 32)
        + b"\xa2to\x82\xa4rank\x00\xabincarnation\xd9\x20"
        + P0.incarnation.encode()
        + b"\xa7attempt\x01\xa4body\x81\xa4type\xa5abort"
        + b"\xadopen_attempts\x82\xa9watermark\x02\xa5below\x91\x01"
    )
    assert wire.decode(frame) == said(Abort(), STILL)
    assert wire.encode(said(Abort(), STILL)) == frame
