"""Peers' deaths on this host, told by their pidfds. What a death proves, each backend says itself."""

from __future__ import annotations

import asyncio
import os
import select
from abc import ABC, abstractmethod

import msgspec

from quiesce.ids import Peer
from quiesce.transport.contract import OnDead


class Watched(msgspec.Struct):
    pidfd: int
    on_dead: OnDead
    loop: asyncio.AbstractEventLoop


class Watch(ABC):
    """`watch`, `is_dead` and `close` of a side that is told of deaths; what follows from one, says `_died`."""

    def __init__(self) -> None:
        self._watched: dict[Peer, Watched] = {}
        self._dead: set[Peer] = set()

    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None:
        """Takes over `pidfd`. A peer that comes again (a new stream of the same life) only changes its `on_dead`."""
        if peer in self._dead or peer in self._watched:
            if pidfd >= 0:
                os.close(pidfd)
            if peer in self._dead:
                loop.call_soon(on_dead, peer)
            else:
                self._watched[peer].on_dead = on_dead
            return
        self._watched[peer] = Watched(pidfd, on_dead, loop)
        if pidfd >= 0:
            loop.add_reader(pidfd, self._died, peer)

    def is_dead(self, peer: Peer) -> bool:
        return peer in self._dead

    def close(self) -> None:
        """Stop watching; no `on_dead` is called any more. Idempotent."""
        for peer in list(self._watched):
            self._unwatch(peer)

    @abstractmethod
    def _died(self, peer: Peer) -> None:
        """Its pidfd is readable: the last thread of the process has ended."""

    def _unwatch(self, peer: Peer) -> Watched:
        watched = self._watched.pop(peer)
        if watched.pidfd >= 0:
            watched.loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
        return watched


class Deaths(Watch):
    """A side for which a peer's death alone is the proof. A stopped process is not dead: it goes on when continued."""

    def is_dead(self, peer: Peer) -> bool:
        """Looks at the pidfd itself, so it may know before `on_dead` is called."""
        if super().is_dead(peer):
            return True
        watched = self._watched.get(peer)
        return watched is not None and watched.pidfd >= 0 and _is_readable(watched.pidfd)

    def _died(self, peer: Peer) -> None:
        on_dead = self._unwatch(peer).on_dead
        self._dead.add(peer)
        on_dead(peer)


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
