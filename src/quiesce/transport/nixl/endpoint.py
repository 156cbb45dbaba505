"""What both sides share that lend memory: an agent whose own thread serves whoever has seen its metadata."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from quiesce.ids import Peer
from quiesce.kv.storage import Pool
from quiesce.transport.nixl.library import NIXL_CAPABILITIES, NixlDescriptor, agent, memory
from quiesce.transport.onesided import addresses_of


class NixlEndpoint:
    """Registers memory of its pool once and lends all of it: taking it back stops nobody who has seen the metadata.

    Each life has a port of the kernel's choice, so that what was meant for an earlier one finds nobody.
    """

    capabilities = NIXL_CAPABILITIES

    def __init__(self, pool: Pool, host: str, *regions: tuple[int, int]) -> None:
        """`regions` are (address, bytes) of what peers may reach. Raises MachineLacksError."""
        self._pool = pool
        self._host = host
        self._name = f"quiesce-{secrets.token_hex(16)}"
        self._agent: Any = agent(self._name, host, progress=True)
        self._agent.registerMem(memory(*regions))
        self._metadata = bytes(self._agent.getLocalMD())

    def describe(self, peer: Peer) -> tuple[bytes, list[int]]:
        pool = self._pool
        life = self._name, self._metadata, self._host
        described = NixlDescriptor(pool.layout, pool.pages, pool.slots, *addresses_of(pool), *life)
        return msgspec.msgpack.encode(described), []

    def close(self) -> None:
        """End the agent. Idempotent."""
        self._agent = None
