"""Deaths of writers on this host, by pidfd: the fence of plain CPU stores into shared memory, and of nothing else."""

from __future__ import annotations

import signal

from quiesce.errors import PeerUnusable
from quiesce.ids import Peer
from quiesce.transport.deaths import Deaths


class WriterDeaths(Deaths):
    """Who is watched, and who is dead; and the fence by force."""

    def kill(self, peer: Peer) -> None:
        """SIGKILL by pidfd, so no other process that got the number since can be hit."""
        if peer in self._dead:
            return
        if peer not in self._watched:
            raise PeerUnusable(f"{peer} is not watched, so it cannot be killed", took_effect=False)
        try:
            signal.pidfd_send_signal(self._watched[peer].pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # dead already; the pidfd is readable and says so
        except OSError as error:
            raise PeerUnusable(f"{peer} cannot be killed: {error}", took_effect=False) from error
