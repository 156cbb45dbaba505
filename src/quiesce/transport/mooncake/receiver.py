"""The side whose pool is written. A lease is three sets of windows: its pages, their tags, its metadata slot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import msgspec
import numpy as np

from quiesce.errors import PeerUnusable, invariant
from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages, pack_runs
from quiesce.kv.storage import METADATA_WORDS, Pool
from quiesce.transport.mooncake.library import MOONCAKE_CAPABILITIES, MooncakeDescriptor, engine

_WORD_BYTES = 8


class MooncakeReceiver:
    """Registers what is leased and nothing else: a write that begins after `disarm` is refused by the library.

    One that was being placed goes on: neither that nor a writer's death is a fence.
    """

    capabilities = MOONCAKE_CAPABILITIES

    def __init__(self, pool: Pool, host: str = "127.0.0.1", port: int = 0) -> None:
        """`port` means nothing here: the library chooses. Raises MachineLacksError."""
        self._pool = pool
        self._host = host
        self._engine = engine(host, 30.0)
        self._windows: dict[int, list[int]] = {}

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        pool = self._pool
        described = MooncakeDescriptor(
            layout=pool.layout,
            pages=pool.pages,
            slots=pool.slots,
            session=f"{self._host}:{self._engine.get_rpc_port()}",
            kv_address=pool.base_address,
            tags_address=int(pool.tags.ctypes.data),
            metadata_address=int(pool.metadata.ctypes.data),
        )
        return msgspec.msgpack.encode(described), []

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        pool = self._pool
        runs = np.frombuffer(pack_runs(np.sort(pages)), "<u4").reshape(-1, 2).tolist()
        rows = pool.layout.layer_groups * _WORD_BYTES
        windows = [
            (pool.base_address + first * pool.layout.page_bytes, n * pool.layout.page_bytes) for first, n in runs
        ]
        windows += [(int(pool.tags.ctypes.data) + first * rows, n * rows) for first, n in runs]
        slot_bytes = METADATA_WORDS * _WORD_BYTES
        windows.append((int(pool.metadata.ctypes.data) + slot * slot_bytes, slot_bytes))
        for address, n_bytes in windows:
            invariant(self._engine.register_memory(address, n_bytes) == 0, "window_registered", f"tag {tag}")
        self._windows[tag] = [address for address, _ in windows]

    def revoke(self, tag: PageTag) -> bool:
        """False: what is being placed goes on. A write that is only refused ends as unknown, so windows stay."""
        return False

    def disarm(self, tag: PageTag) -> None:
        """Nothing of the tag begins any more."""
        for address in self._windows.pop(tag, ()):
            self._engine.unregister_memory(address)

    def watch(
        self,
        peer: Peer,
        pidfd: int,
        on_dead: Callable[[Peer], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """A writer's death proves nothing here: its bytes may be in our queues. `on_dead` is never called."""
        if pidfd >= 0:
            os.close(pidfd)

    def kill(self, peer: Peer) -> None:
        raise PeerUnusable("Mooncake cannot shut one writer out", took_effect=False)

    def is_dead(self, peer: Peer) -> bool:
        return False

    def close(self) -> None:
        """Take every window back and end the engine. Idempotent."""
        for tag in list(self._windows):
            self.disarm(PageTag(tag))
        self._engine = None
