"""The side whose pool is read: it listens, proves who reads, and closes windows by attempt or shuts out by peer."""

from __future__ import annotations

from quiesce.ids import PageTag
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.transport.tcp.borrower import Borrower
from quiesce.transport.tcp.inbound import Guest
from quiesce.transport.tcp.receiver import TcpHost
from quiesce.transport.tcp.sockets import Stream
from quiesce.transport.tcp.windows import Windows
from quiesce.trust.contexts import Tls


class TcpLender(TcpHost):
    """Sends pages of `pool` to peers that ask for them, each byte only while the window that lends it is open."""

    admits = "decode"

    def __init__(self, pool: Pool, host: str = "127.0.0.1", port: int = 0, tls: Tls | None = None) -> None:
        """As `TcpHost`."""
        self._windows = Windows()
        super().__init__(pool, host, port, tls)

    def lend(self, tag: PageTag, pages: Pages) -> None:
        self._windows.lend(tag, pages)

    def revoke(self, tag: PageTag) -> bool:
        """Always True: after it no byte of a page is taken for that tag, whatever its readers still ask for.

        What lies in the kernel's buffers by then was copied before, and may still land at the reader. Waits for at most
        one piece that the kernel is copying, never for a peer.
        """
        self._windows.revoke(tag)
        return True

    def take_back(self, tag: PageTag) -> None:
        self._windows.revoke(tag)

    def _guest(self, stream: Stream) -> Guest:
        return Borrower(stream, self._pool, self._windows, self._key_of)
