"""The side whose pool is written. Its agent's thread places whatever comes: what is leased, it does not know."""

from __future__ import annotations

from quiesce.kv.storage import Pool
from quiesce.transport.nixl.endpoint import NixlEndpoint
from quiesce.transport.onesided import addresses_of
from quiesce.transport.unfenced import UnfencedReceiver


class NixlReceiver(NixlEndpoint, UnfencedReceiver):
    """There is no fence: what comes is placed. `port` means nothing (see `NixlEndpoint`)."""

    def __init__(self, pool: Pool, host: str = "127.0.0.1", port: int = 0) -> None:
        """Raises MachineLacksError."""
        sizes = pool.pages * pool.layout.page_bytes, pool.tags.nbytes, pool.metadata.nbytes
        NixlEndpoint.__init__(self, pool, host, *zip(addresses_of(pool), sizes, strict=True))
