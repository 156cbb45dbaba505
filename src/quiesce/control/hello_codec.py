"""Reading HELLO and the first frame of a connection."""

from __future__ import annotations

import msgspec

from quiesce.control.bounds import MAX_NAME_CHARS, check_hex_128, check_int, check_text
from quiesce.control.dispatch_codec import check_router_frame
from quiesce.control.frames import decoder_of
from quiesce.errors import BadFrame
from quiesce.protocol.dispatch import Attach
from quiesce.protocol.hello import PROTOCOL_VERSION, Greeting, Hello, OtherVersion

MAX_RANKS = 1024
MAX_HELLO_BYTES = 8 << 10

_decode_first = decoder_of(Attach | Hello)
_decode_hello = decoder_of(Hello)


class _Glance(msgspec.Struct, frozen=True):
    """What every version's HELLO has; anything at all in any other frame."""

    type: object = None
    version: object = None
    worker: object = None


_decode_glance = decoder_of(_Glance)


def other_version(payload: bytes) -> OtherVersion | None:
    """Who says HELLO in a version that is not ours, whatever else is in it; None for any other frame."""
    try:
        seen: _Glance = _decode_glance(payload)
    except BadFrame:
        return None
    if seen.type != "hello" or type(seen.version) is not int or seen.version == PROTOCOL_VERSION:
        return None
    named = isinstance(seen.worker, str) and 1 <= len(seen.worker) <= MAX_NAME_CHARS
    return OtherVersion(seen.version, str(seen.worker) if named else "the other worker")


def decode_first(payload: bytes) -> Attach | Hello | OtherVersion:
    """What a new connection wants: to dispatch or look (Attach), or to be a decode peer (Hello). Raises BadFrame."""
    if (other := other_version(payload)) is not None:
        return other
    frame: Attach | Hello = _decode_first(payload)
    if isinstance(frame, Hello):
        check_hello(frame)
    else:
        check_router_frame(frame)
    return frame


def decode_greeting(payload: bytes) -> Greeting:
    """A HELLO that came by another way than its stream. Raises BadFrame."""
    if len(payload) > MAX_HELLO_BYTES:
        raise BadFrame(f"hello: {len(payload)} bytes; at most {MAX_HELLO_BYTES} are allowed")
    if (other := other_version(payload)) is not None:
        return other
    hello: Hello = _decode_hello(payload)
    check_hello(hello)
    return hello


def check_hello(hello: Hello) -> None:
    """Raise BadFrame unless every field keeps its bounds."""
    check_int("version", hello.version)
    check_int("ranks", hello.ranks, 1, MAX_RANKS)
    check_hex_128("incarnation", hello.incarnation)
    check_hex_128("nonce", hello.nonce)
    if hello.echo:
        check_hex_128("echo", hello.echo)
    for field in ("role", "worker", "transport", "transfer"):
        check_text(field, getattr(hello, field), least_chars=1)
    for field in ("model_fingerprint", "layout_fingerprint", "payload_digest"):
        check_text(field, getattr(hello, field), MAX_NAME_CHARS)
