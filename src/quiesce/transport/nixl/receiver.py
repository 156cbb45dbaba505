"""The side whose pool is written. Its agent's thread places whatever comes: what is leased, it does not know."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from quiesce.ids import Peer
from quiesce.kv.storage import Pool
from quiesce.transport.nixl.library import NIXL_CAPABILITIES, NixlDescriptor, agent, memory
from quiesce.transport.onesided import addresses_of
from quiesce.transport.unfenced import UnfencedReceiver


class NixlReceiver(UnfencedReceiver):
    """Registers its pool once and lends all of it: taking memory back stops nobody who has seen the metadata.

    So there is no fence. `port` means nothing: each life has a port of the kernel's choice, so that what was meant for
    an earlier one finds nobody.
    """

    capabilities = NIXL_CAPABILITIES

    def __init__(self, pool: Pool, host: str = "127.0.0.1", port: int = 0) -> None:
        """Raises MachineLacksError."""
        super().__init__(pool)
        self._host = host
        self._name = f"quiesce-{secrets.token_hex(16)}"
        self._agent: Any = agent(self._name, host, progress=True)
        sizes = pool.pages * pool.layout.page_bytes, pool.tags.nbytes, pool.metadata.nbytes
        self._agent.registerMem(memory(*zip(addresses_of(pool), sizes, strict=True)))
        self._metadata = bytes(self._agent.getLocalMD())

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        pool = self._pool
        life = self._name, self._metadata, self._host
        described = NixlDescriptor(pool.layout, pool.pages, pool.slots, *addresses_of(pool), *life)
        return msgspec.msgpack.encode(described), []

    def close(self) -> None:
        """End the agent. Idempotent."""
        self._agent = None
