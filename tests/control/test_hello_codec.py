from __future__ import annotations

import msgspec
import pytest

from quiesce.control import frames
from quiesce.control.handshake import Refusal
from quiesce.control.hello_codec import decode_first, other_version
from quiesce.errors import BadFrame
from quiesce.protocol.dispatch import Attach
from quiesce.protocol.hello import OtherVersion

from .connections import Note
from .hellos import DECODE


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 0},
        {"ranks": 1 << 20},
        {"worker": ""},
        {"worker": "x" * 300},
        {"transfer": ""},
        {"transfer": "x" * 300},
        {"incarnation": "D" * 32},
        {"nonce": ""},
        {"echo": "x"},
        {"model_fingerprint": "x" * 300},
    ],
)
async def test_hello_is_bounds_checked(change: dict[str, object]) -> None:
    hello = msgspec.structs.replace(DECODE, **change)
    with pytest.raises(BadFrame):
        decode_first(frames.pack(hello))


def test_a_first_frame_is_hello_or_attach() -> None:
    assert decode_first(frames.pack(DECODE)) == DECODE
    assert decode_first(frames.pack(Attach("router"))) == Attach("router")
    for nonsense in (Attach(""), Note(1), Refusal("x")):
        with pytest.raises(BadFrame):
            decode_first(frames.pack(nonsense))


@pytest.mark.parametrize(
    ("frame", "version", "worker"),
    [
        ({"type": "hello", "version": 99, "worker": "w", "role": 7}, 99, "w"),
        ({"type": "hello", "version": 1}, 1, "the other worker"),
        ({"type": "hello", "version": -1, "worker": "x" * 300}, -1, "the other worker"),
    ],
)
def test_the_version_is_read_of_whatever_hello(frame: dict[str, object], version: int, worker: str) -> None:
    assert decode_first(frames.pack(frame)) == OtherVersion(version, worker)


@pytest.mark.parametrize(
    "frame", [{"type": "hello", "version": "9"}, {"type": "hello", "version": True}, {"version": 9}, [9], 9, b"\xc1"]
)
def test_what_is_no_hello_is_no_other_version(frame: object) -> None:
    with pytest.raises(BadFrame):
        decode_first(frames.pack(frame))
    assert other_version(b"\xc1") is None
