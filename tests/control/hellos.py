"""Two workers that fit together."""

from __future__ import annotations

import msgspec

from quiesce.ids import Incarnation
from quiesce.protocol.hello import PROTOCOL_VERSION, Capabilities, Hello

DECODE = Hello(
    version=PROTOCOL_VERSION,
    role="decode",
    worker="decode-0",
    incarnation=Incarnation("d" * 32),
    ranks=1,
    model_fingerprint="m",
    layout_fingerprint="l",
    payload_digest="",
    transport="shm",
    capabilities=Capabilities(drain_ack=True, fence=True),
    nonce="0" * 32,
)
PREFILL = msgspec.structs.replace(DECODE, role="prefill", worker="prefill-0", incarnation=Incarnation("e" * 32))
