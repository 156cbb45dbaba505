"""Peers' deaths on this host, told by their pidfds. What a death proves, each backend says itself."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable

import msgspec

from quiesce.ids import Peer


class _Watched(msgspec.Struct):
    pidfd: int
    on_dead: Callable[[Peer], None]
    loop: asyncio.AbstractEventLoop


class Deaths:
    """`watch`, `is_dead` and `close` of a side for which a peer's death alone is the proof.

    A pidfd becomes readable after the last thread of the process has ended. A stopped process is not dead: it goes on
    when continued.
    """

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
        if peer in self._dead or peer in self._watched:
            if pidfd >= 0:
                os.close(pidfd)
            if peer in self._dead:
                loop.call_soon(on_dead, peer)
            else:
                self._watched[peer].on_dead = on_dead
            return
        self._watched[peer] = _Watched(pidfd, on_dead, loop)
        if pidfd >= 0:
            loop.add_reader(pidfd, self._died, peer)

    def is_dead(self, peer: Peer) -> bool:
        """Looks at the pidfd itself, so it may know before `on_dead` is called."""
        if peer in self._dead:
            return True
        watched = self._watched.get(peer)
        return watched is not None and watched.pidfd >= 0 and _is_readable(watched.pidfd)

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
        if watched.pidfd >= 0:
            watched.loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
