"""What is said at a registration: every field is bounded, and noise is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.control.frames import pack
from quiesce.control.registration_codec import decode_leave, decode_register, decode_registrar_frame
from quiesce.errors import BadFrame
from quiesce.ids import Incarnation
from quiesce.protocol.registration import Leave, Refused, Register, Registered

SAID = Register(3, "prefill", "prefill-0", Incarnation("a" * 32), "tcp://10.0.0.2:9001", "tiny")


def test_each_frame_is_read_as_it_was_written() -> None:
    assert decode_register(pack(SAID)) == SAID
    assert decode_leave(pack(Leave())) == Leave()
    for frame in (Registered(), Registered((("p", "tcp://h:1"),)), Refused("no")):
        assert decode_registrar_frame(pack(frame)) == frame


@pytest.mark.parametrize(
    "change",
    [
        {"version": -1},
        {"role": "router"},
        {"worker": ""},
        {"worker": "w" * 257},
        {"incarnation": "A" * 32},
        {"address": ""},
        {"address": "a" * 513},
        {"model": "m" * 257},
    ],
)
def test_what_a_worker_says_keeps_its_bounds(change: dict[str, Any]) -> None:
    with pytest.raises(BadFrame):
        decode_register(pack(msgspec.structs.replace(SAID, **change)))


@pytest.mark.parametrize(
    "frame",
    [
        Refused("x" * (1 << 17)),
        Registered((("p", "a"),) * 1025),
        Registered((("", "a"),)),
        Registered((("p", "a" * 513),)),
        SAID,
    ],
)
def test_what_a_router_says_keeps_its_bounds(frame: msgspec.Struct) -> None:
    with pytest.raises(BadFrame):
        decode_registrar_frame(pack(frame))


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for decode in (decode_register, decode_registrar_frame, decode_leave):
        with contextlib.suppress(BadFrame):
            decode(noise)
