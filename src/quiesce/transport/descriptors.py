"""What a receiver says of its pool when a writer asks, and how a writer reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from quiesce.errors import HandshakeRefused
from quiesce.kv.layout import Layout
from quiesce.kv.storage import MAX_PAGES, MAX_SLOTS

MAX_DESCRIPTOR_BYTES = 4096


class Descriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of a pool."""

    layout: Layout
    pages: int
    slots: int


D = TypeVar("D", bound=Descriptor)


def decode_descriptor(data: bytes, kind: type[D]) -> D:
    """Raises HandshakeRefused for a descriptor that no receiver of ours makes."""
    if len(data) > MAX_DESCRIPTOR_BYTES:
        raise HandshakeRefused(f"a descriptor of {len(data)} bytes is too long")
    try:
        described = msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise HandshakeRefused(f"the peer's pool descriptor is malformed: {error}") from error
    if not 1 <= described.pages <= MAX_PAGES or not 0 <= described.slots <= MAX_SLOTS:
        raise HandshakeRefused(f"the peer claims {described.pages} pages and {described.slots} slots")
    return described


def require_fit(described: Descriptor, layout: Layout, fds: Sequence[int], n_fds: int = 0) -> None:
    """Raises HandshakeRefused unless the peer's pages are like ours and `n_fds` descriptors came with them."""
    if len(fds) != n_fds:
        raise HandshakeRefused(f"a receiver of this transport passes {n_fds} file descriptors, not {len(fds)}")
    if described.layout != layout:
        raise HandshakeRefused(f"the peer's pages are {described.layout}, ours are {layout}")
