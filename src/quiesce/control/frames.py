"""How a frame looks: a 4-byte big-endian length, then that many bytes of msgpack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from quiesce.errors import BadFrame, invariant

MAX_FRAME_BYTES = 16 << 20
"""Payload bytes of the largest frame: the tokens of a 2,097,152 token prompt are 8 MiB."""

HEADER_BYTES = 4

_encoder = msgspec.msgpack.Encoder()


def encode(frame: object) -> bytes:
    """A frame with its length in front, ready for the socket."""
    return prefixed(pack(frame))


def pack(frame: object) -> bytes:
    """A frame's payload: msgpack, without the length."""
    return _encoder.encode(frame)


def prefixed(payload: bytes) -> bytes:
    """A payload with its length in front. A payload over the limit is our bug: the other side would hang up."""
    invariant(len(payload) <= MAX_FRAME_BYTES, "frame_fits", f"{len(payload)} bytes")
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


def payload_bytes(header: bytes | bytearray, limit_bytes: int = MAX_FRAME_BYTES) -> int:
    """The payload length that a 4-byte header announces. Raises BadFrame when it is over `limit_bytes`."""
    length = int.from_bytes(header, "big")
    if length > limit_bytes:
        raise BadFrame(f"a frame announces {length} bytes; the limit is {limit_bytes}")
    return length


def decoder_of(kind: Any) -> Callable[[bytes], Any]:
    """A strict decoder of one struct type or a tagged union of them; it raises BadFrame and nothing else.

    Shapes and types are checked here; bounds of single fields are the caller's (`dispatch_codec`).
    """
    decoder = msgspec.msgpack.Decoder(kind)

    def decode(payload: bytes) -> Any:
        try:
            return decoder.decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadFrame(f"a frame of {len(payload)} bytes cannot be read: {error}") from error

    return decode
