"""The library, made only when it is needed, and what a receiver says of itself."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from quiesce.errors import HandshakeRefused, MachineLacksError
from quiesce.kv.layout import Layout
from quiesce.kv.storage import MAX_PAGES, MAX_SLOTS
from quiesce.protocol.hello import Capabilities

VERIFIED = "0.3.13.post1"
"""The version that the conformance suite was run against."""
# No fence: unregistering a window does not stop what is being placed into it (measured; docs/transports.md).
MOONCAKE_CAPABILITIES = Capabilities(drain_ack=True, source_fence=True, bounds_checked=True)
MOST_ENTRIES = 1024
"""Entries of one batch; about 2,048 waiting for one peer make the library fail at once."""
_MAX_DESCRIPTOR_BYTES = 4096
_LEAST_TIMEOUT_S = 5  # the library's own floor


class MooncakeDescriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the planes of a receiver's pool lie in its own address space."""

    layout: Layout
    pages: int
    slots: int
    session: str
    kv_address: int
    tags_address: int
    metadata_address: int


def engine(host: str, call_deadline_s: float) -> Any:
    """A started transfer engine. Raises MachineLacksError when the library, or what it needs, is not here.

    The library reads its time limit from the environment when it is first loaded.
    """
    os.environ.setdefault("MC_TRANSFER_TIMEOUT", str(max(_LEAST_TIMEOUT_S, round(call_deadline_s))))
    os.environ.setdefault("GLOG_minloglevel", "2")
    try:
        from mooncake.engine import TransferEngine
    except ImportError as error:
        raise MachineLacksError(
            f"Mooncake's transfer engine cannot be loaded: {error}",
            remedy="pip install 'quiesce[mooncake]', and Debian's package libibverbs1.",
        ) from error
    made = TransferEngine()
    if made.initialize(host, "P2PHANDSHAKE", "tcp", ""):
        raise MachineLacksError(f"Mooncake's transfer engine cannot listen at {host}")
    return made


def decode_descriptor(data: bytes) -> MooncakeDescriptor:
    """Raises HandshakeRefused for a descriptor that no receiver of ours makes."""
    if len(data) > _MAX_DESCRIPTOR_BYTES:
        raise HandshakeRefused(f"a descriptor of {len(data)} bytes is too long")
    try:
        described = msgspec.msgpack.decode(data, type=MooncakeDescriptor)
    except msgspec.MsgspecError as error:
        raise HandshakeRefused(f"the peer's pool descriptor is malformed: {error}") from error
    if not 1 <= described.pages <= MAX_PAGES or not 0 <= described.slots <= MAX_SLOTS:
        raise HandshakeRefused(f"the peer claims {described.pages} pages and {described.slots} slots")
    return described
