"""The side whose pool is written. A lease is three sets of windows: its pages, their tags, its metadata slot."""

from __future__ import annotations

import msgspec
import numpy as np

from quiesce.errors import invariant
from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages, pack_runs
from quiesce.kv.storage import Pool
from quiesce.transport.mooncake.library import MOONCAKE_CAPABILITIES, MooncakeDescriptor, engine
from quiesce.transport.onesided import SLOT_BYTES, WORD_BYTES, addresses_of
from quiesce.transport.unfenced import UnfencedReceiver


class MooncakeReceiver(UnfencedReceiver):
    """Registers what is leased and nothing else: a write that begins after `disarm` is refused by the library.

    One that was being placed goes on: neither that nor a writer's death is a fence.
    """

    capabilities = MOONCAKE_CAPABILITIES

    def __init__(self, pool: Pool, host: str = "127.0.0.1", port: int = 0) -> None:
        """`port` means nothing here: the library chooses. Raises MachineLacksError."""
        super().__init__(pool)
        self._host = host
        self._engine = engine(host, 30.0)
        self._windows: dict[int, list[int]] = {}

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        pool = self._pool
        session = f"{self._host}:{self._engine.get_rpc_port()}"
        described = MooncakeDescriptor(pool.layout, pool.pages, pool.slots, *addresses_of(pool), session)
        return msgspec.msgpack.encode(described), []

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        pool = self._pool
        runs = np.frombuffer(pack_runs(np.sort(pages)), "<u4").reshape(-1, 2).tolist()
        rows = pool.layout.layer_groups * WORD_BYTES
        kv, tags, metadata = addresses_of(pool)
        windows = [(kv + first * pool.layout.page_bytes, n * pool.layout.page_bytes) for first, n in runs]
        windows += [(tags + first * rows, n * rows) for first, n in runs]
        windows.append((metadata + slot * SLOT_BYTES, SLOT_BYTES))
        for address, n_bytes in windows:
            invariant(self._engine.register_memory(address, n_bytes) == 0, "window_registered", f"tag {tag}")
        self._windows[tag] = [address for address, _ in windows]

    def disarm(self, tag: PageTag) -> None:
        """Nothing of the tag begins any more."""
        for address in self._windows.pop(tag, ()):
            self._engine.unregister_memory(address)

    def close(self) -> None:
        """Take every window back and end the engine. Idempotent."""
        for tag in list(self._windows):
            self.disarm(PageTag(tag))
        self._engine = None
