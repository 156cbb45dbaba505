"""The side whose pool is read. Its agent's thread sends whatever is asked for: what is lent, it does not know."""

from __future__ import annotations

from quiesce.errors import PeerUnusable
from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.transport.deaths import Deaths
from quiesce.transport.nixl.endpoint import NixlEndpoint


class NixlLender(NixlEndpoint, Deaths):
    """A read that was launched reads what the page holds when its turn comes, revoked or not (measured).

    So the source is free when its reader says so, or is dead: what is still read for a dead one reaches nobody.
    `port` means nothing (see `NixlEndpoint`). Only pages can be read, neither tags nor metadata.
    """

    def __init__(self, pool: Pool, host: str = "127.0.0.1", port: int = 0) -> None:
        """Raises MachineLacksError."""
        NixlEndpoint.__init__(self, pool, host, (pool.base_address, pool.pages * pool.layout.page_bytes))
        Deaths.__init__(self)

    def lend(self, tag: PageTag, pages: Pages) -> None:
        """Nothing: the whole pool is lent. The puller's own bounds are all that there are."""

    def revoke(self, tag: PageTag) -> bool:
        """False: who has seen the metadata reads on, whatever is taken back."""
        return False

    def take_back(self, tag: PageTag) -> None:
        """Nothing, as in `lend`."""

    def kill(self, peer: Peer) -> None:
        raise PeerUnusable("this transport cannot shut one reader out", took_effect=False)

    def close(self) -> None:
        NixlEndpoint.close(self)
        Deaths.close(self)
