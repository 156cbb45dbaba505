"""The writing side: an agent for each thread of a lane, which moves bytes only while that thread asks how they are."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from quiesce.errors import HandshakeRefused
from quiesce.kv.storage import Pool
from quiesce.transport.nixl.library import NIXL_CAPABILITIES, NixlDescriptor, agent, library, memory
from quiesce.transport.onesided import Copies, Line, OneSidedSender, Words

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 50e-6, 2e-3
WATCH_S = 0.05
"""How often transfers are looked at that outlived their deadline."""


class NixlLine(Line):
    """An agent of its own that knows one peer. It writes: the local side of a copy is its source.

    It never connects twice by one descriptor: whoever answers at the same port and address may be a later life, and
    the library does not ask (measured). A connection that broke stays broken; a new handshake brings a new line.
    """

    operation = "NIXL_WRITE"
    local, remote = 0, 1
    """Columns of `Copies`."""
    doubt = ", bytes may still land"
    """What is left to say when it broke."""

    def __init__(self, pool: Pool, described: NixlDescriptor) -> None:
        """Raises HandshakeRefused, MachineLacksError."""
        self._nixl = library()
        self._agent: Any = agent(f"quiesce-{secrets.token_hex(8)}", described.host, progress=False)
        self._agent.registerMem(memory((pool.base_address, pool.pages * pool.layout.page_bytes)))
        self._unfinished: list[int] = []
        try:
            self._peer = self._agent.loadRemoteMD(described.metadata).decode()
        except Exception as error:  # whatever the library raises
            raise HandshakeRefused(f"NIXL does not understand the peer's metadata: {error}") from error
        if self._peer != described.agent:
            raise HandshakeRefused(f"the metadata are of {self._peer!r}, not of {described.agent!r}")

    def lend(self, staging: Words) -> None:
        self._agent.registerMem(memory((int(staging.ctypes.data), staging.nbytes)))

    def take_back(self, staging: Words) -> None:
        self._agent.deregisterMem(memory((int(staging.ctypes.data), staging.nbytes)))

    def copy(self, copies: Copies, wanted: Callable[[], bool]) -> str:
        """Whatever is not done when it returns stays under way: the library cannot call it back."""
        try:
            operation = getattr(self._nixl, self.operation)
            handle = self._agent.createXferReq(operation, *self._sides(copies), self._peer)
        except Exception as error:  # whatever the library raises
            self.broken = f"NIXL begins no transfer to the peer: {error}"
            return self.broken
        self._unfinished.append(handle)
        if self._has_landed(handle, self._agent.postXferReq):
            return ""
        pause_s = SHORTEST_PAUSE_S
        while not self.broken and wanted():
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if self._has_landed(handle, self._agent.getXferStatus):
                return ""
        return self.broken or "not done in time; it may still land"

    def tend(self) -> float | None:
        for handle in self._unfinished[:]:
            if not self.broken:
                self._has_landed(handle, self._agent.getXferStatus)
        return WATCH_S if self._unfinished and not self.broken else None

    def close(self) -> None:
        """End the agent, with whatever it has not sent yet."""
        self.broken = self.broken or "the line is closed"
        self._agent = None

    def _has_landed(self, handle: int, ask: Callable[[int], Any]) -> bool:
        """Ask about a transfer, which also moves it on; one that failed is never let go of."""
        try:
            status = ask(handle)
        except Exception as error:  # whatever the library raises
            self.broken = f"the connection to the peer broke{self.doubt}: {error}"
            return False
        if status == self._nixl.NIXL_IN_PROG:
            return False
        if status != self._nixl.NIXL_SUCCESS:
            self.broken = f"NIXL says {status}{self.doubt}"
            return False
        self._unfinished.remove(handle)
        self._agent.releaseXferReq(handle)
        return True

    def _sides(self, copies: Copies) -> tuple[Any, Any]:
        """The local and the remote list of a transfer: rows of address, bytes, device."""
        device = np.zeros(len(copies), np.uint64)
        sides = (np.stack([copies[:, side], copies[:, 2], device], axis=1) for side in (self.local, self.remote))
        local, remote = (self._nixl.nixlXferDList(self._nixl.DRAM_SEG, side) for side in sides)
        return local, remote


class NixlSender(OneSidedSender[NixlDescriptor]):
    """Writes pages of `pool` through NIXL agents."""

    capabilities = NIXL_CAPABILITIES
    descriptor = NixlDescriptor

    def _load(self, call_deadline_s: float) -> None:
        library()

    def _connect(self, described: NixlDescriptor) -> NixlLine:
        return NixlLine(self._pool, described)
