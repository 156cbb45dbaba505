from __future__ import annotations

import msgspec
import pytest

from quiesce.control import frames
from quiesce.control.handshake import Refusal
from quiesce.control.hello_codec import decode_first
from quiesce.errors import BadFrame
from quiesce.protocol.dispatch import Attach

from .connections import Note
from .hellos import DECODE


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 0},
        {"ranks": 1 << 20},
        {"version": -1},
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
