"""Connected sockets and streams for the tests of this room."""

from __future__ import annotations

import socket

import msgspec

from quiesce.control.frames import decoder_of
from quiesce.control.stream import FrameStream


class Note(msgspec.Struct, frozen=True, tag="note"):
    """The smallest useful frame."""

    serial: int
    text: str = ""


decode_note = decoder_of(Note)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    left.setblocking(False)
    right.setblocking(False)
    return left, right


def stream_and_peer() -> tuple[FrameStream[Note], socket.socket]:
    """A stream and the bare socket at its other end."""
    left, right = socket_pair()
    return FrameStream(left, decode_note, "test"), right


def stream_pair() -> tuple[FrameStream[Note], FrameStream[Note]]:
    left, right = socket_pair()
    return FrameStream(left, decode_note, "left"), FrameStream(right, decode_note, "right")
