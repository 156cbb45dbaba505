"""The side whose pool is written by a library that neither asks nor stops: there is no fence, so nothing proves one."""

from __future__ import annotations

import asyncio
import os

from quiesce.errors import PeerUnusable
from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.transport.contract import OnDead


class UnfencedReceiver:
    """All of a `contract.Receiver` but `describe`; its pages come back when their writer has acknowledged, or never."""

    capabilities: Capabilities

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def arm(self, tag: PageTag, pages: Pages, slot: int) -> None:
        """Nothing, where the whole pool is lent."""

    def revoke(self, tag: PageTag) -> bool:
        """False: what is being placed goes on. What `arm` permitted stays, for a write that is refused has no end."""
        return False

    def disarm(self, tag: PageTag) -> None:
        """Nothing, as in `arm`."""

    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None:
        """A writer's death proves nothing here: its bytes may be in our queues. `on_dead` is never called."""
        if pidfd >= 0:
            os.close(pidfd)

    def kill(self, peer: Peer) -> None:
        raise PeerUnusable("this transport cannot shut one writer out", took_effect=False)

    def is_dead(self, peer: Peer) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""
