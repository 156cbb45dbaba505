"""Deaths of writers on this host, by pidfd: the fence of plain CPU stores into shared memory, and of nothing else."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable

import msgspec

from quiesce.errors import PeerUnusable
from quiesce.ids import Peer


class _Watched(msgspec.Struct):
    pidfd: int
    on_dead: Callable[[Peer], None]
    loop: asyncio.AbstractEventLoop


class WriterDeaths:
    """Who is watched, and who is dead. The pidfd becomes readable after the last thread of a process has ended."""

    def __init__(self) -> None:
        self._watched: dict[Peer, _Watched] = {}
        self._dead: set[Peer] = set()

    def watch(
        self,
        peer: Peer,
        pidfd: int,
        on_dead: Callable[[Peer], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Takes over `pidfd`. A peer that comes again (a new stream of the same life) only changes its `on_dead`."""
        if peer in self._dead:
            os.close(pidfd)
            loop.call_soon(on_dead, peer)
        elif peer in self._watched:
            os.close(pidfd)
            self._watched[peer].on_dead = on_dead
        else:
            self._watched[peer] = _Watched(pidfd, on_dead, loop)
            loop.add_reader(pidfd, self._died, peer)

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

    def is_dead(self, peer: Peer) -> bool:
        """Looks at the pidfd itself, so it may know before `on_dead` is called."""
        if peer in self._dead:
            return True
        watched = self._watched.get(peer)
        return watched is not None and _is_readable(watched.pidfd)

    def close(self) -> None:
        """Stop watching; no `on_dead` is called any more. Idempotent."""
        for peer in list(self._watched):
            self._unwatch(peer)

    def _died(self, peer: Peer) -> None:
        on_dead = self._watched[peer].on_dead
        self._unwatch(peer)
        self._dead.add(peer)
        on_dead(peer)

    def _unwatch(self, peer: Peer) -> None:
        watched = self._watched.pop(peer)
        watched.loop.remove_reader(watched.pidfd)
        os.close(watched.pidfd)


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
