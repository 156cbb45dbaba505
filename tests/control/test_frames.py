from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.control import frames
from quiesce.control.splitter import FrameSplitter
from quiesce.errors import BadFrame, InvariantBroken

from .connections import Note, decode_note


def test_a_frame_is_its_length_and_msgpack() -> None:
    data = frames.encode(Note(7, "x"))
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert decode_note(data[4:]) == Note(7, "x")


def test_a_length_over_the_limit_is_refused() -> None:
    assert frames.payload_bytes(frames.MAX_FRAME_BYTES.to_bytes(4, "big")) == frames.MAX_FRAME_BYTES
    with pytest.raises(BadFrame, match="limit"):
        frames.payload_bytes((frames.MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_our_own_frame_over_the_limit_is_our_bug() -> None:
    with pytest.raises(InvariantBroken, match="frame_fits"):
        frames.prefixed(bytes(frames.MAX_FRAME_BYTES + 1))


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_frame_or_a_frame(payload: bytes) -> None:
    """The decoder raises BadFrame and nothing else, whatever comes."""
    with contextlib.suppress(BadFrame):
        assert isinstance(decode_note(payload), Note)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x91" * 100_000,  # deep nesting
        b"\xdd\xff\xff\xff\xff",  # an array that claims 4 billion entries
        msgspec.msgpack.encode({"type": "other", "serial": 1}),
        msgspec.msgpack.encode({"type": "note", "serial": "1"}),
        msgspec.msgpack.encode({"type": "note"}),
        b"\x82\xa4type\xa4note\xa6serial\xa2\xff\xfe",  # not UTF-8
        frames.pack(Note(1)) + b"x",
    ],
)
def test_nonsense_is_refused(payload: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_note(payload)


@given(st.lists(st.binary(max_size=50), max_size=20), st.data())
def test_any_cut_of_the_bytes_gives_the_same_payloads(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frames.prefixed(payload) for payload in payloads)
    splitter, found = FrameSplitter(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        splitter.feed(stream[:size])
        stream = stream[size:]
        while splitter.has_frame:
            found.append(splitter.next_payload())
        assert splitter.next_payload() is None
    assert found == payloads
    assert splitter.buffered_bytes == 0


def test_an_oversized_frame_is_refused_before_its_bytes_arrive() -> None:
    splitter = FrameSplitter(limit_bytes=10)
    splitter.feed((11).to_bytes(4, "big"))
    assert splitter.has_frame
    with pytest.raises(BadFrame):
        splitter.next_payload()


def test_frames_before_an_oversized_one_are_still_given() -> None:
    splitter = FrameSplitter(limit_bytes=10)
    splitter.feed(frames.prefixed(b"fine") + (11).to_bytes(4, "big"))
    assert splitter.next_payload() == b"fine"
    with pytest.raises(BadFrame):
        splitter.next_payload()


def test_a_large_batch_of_small_frames_is_cut_in_linear_time() -> None:
    """Every payload is copied once; moving the buffer for each frame would be 3 * 10^11 bytes here."""
    frame = frames.prefixed(b"12345678")
    splitter = FrameSplitter()
    splitter.feed(frame * 250_000)
    count = 0
    while splitter.next_payload() is not None:
        count += 1
    assert count == 250_000
