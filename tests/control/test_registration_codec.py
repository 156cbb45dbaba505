"""What is said at a registration: every field is bounded, and noise is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.control.frames import pack
from quiesce.control.hello_codec import MAX_HELLO_BYTES, decode_greeting
from quiesce.control.registration_codec import MOST_UNFIT, decode_leave, decode_register, decode_registrar_frame
from quiesce.errors import BadFrame
from quiesce.ids import Incarnation
from quiesce.protocol.hello import PROTOCOL_VERSION, OtherVersion
from quiesce.protocol.registration import Leave, Refused, Register, Registered
from tests.control.hellos import PREFILL

SAID = Register(3, "prefill", "prefill-0", Incarnation("a" * 32), "tcp://10.0.0.2:9001", "tiny")


def test_each_frame_is_read_as_it_was_written() -> None:
    assert decode_register(pack(SAID)) == SAID
    assert decode_leave(pack(Leave())) == Leave()
    for frame in (Registered(), Registered((("p", "tcp://h:1"),), (("q", "no"),)), Refused("no")):
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
        {"hello": b"\xc1"},
        {"hello": pack(SAID)},
        {"hello": pack(msgspec.structs.replace(PREFILL, nonce=""))},
        {"hello": pack({"type": "hello", "version": 99, "worker": "w", "more": b"x" * MAX_HELLO_BYTES})},
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
        Registered((), (("p", "no"),) * (MOST_UNFIT + 1)),
        Registered((), (("", "no"),)),
        Registered((), (("p", "n" * 1025),)),
        SAID,
    ],
)
def test_what_a_router_says_keeps_its_bounds(frame: msgspec.Struct) -> None:
    with pytest.raises(BadFrame):
        decode_registrar_frame(pack(frame))


def test_what_a_worker_says_in_hello_is_read_whatever_its_version() -> None:
    said = msgspec.structs.replace(SAID, hello=pack(PREFILL))
    assert decode_greeting(decode_register(pack(said)).hello) == PREFILL
    future = pack({"type": "hello", "version": PROTOCOL_VERSION + 1, "worker": "p", "transport": [7]})
    assert decode_register(pack(msgspec.structs.replace(SAID, hello=future))).hello == future
    assert decode_greeting(future) == OtherVersion(PROTOCOL_VERSION + 1, "p")


def test_builds_that_know_nothing_of_hello_at_registration_understand_the_others() -> None:
    """What is new is left out by who does not say it, and ignored by who does not read it."""
    old = {"type": "register", "version": 3, "role": "prefill", "worker": "prefill-0"}
    old |= {"incarnation": "a" * 32, "address": "tcp://10.0.0.2:9001", "model": "tiny"}
    assert decode_register(pack(old)) == SAID
    assert decode_register(pack({**old, "later": 1})) == SAID
    assert decode_registrar_frame(pack({"type": "registered", "prefills": (), "later": 1})) == Registered()


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for decode in (decode_register, decode_registrar_frame, decode_leave, decode_greeting):
        with contextlib.suppress(BadFrame):
            decode(noise)
