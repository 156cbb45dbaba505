"""Backends that break one promise each: the conformance suite has to find every one of them out."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from quiesce.ids import PageTag, Peer
from quiesce.kv.runs import CopyRuns
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion, OnDead, Write
from quiesce.transport.placement import Placement, Placing
from quiesce.transport.registry import Backend, backend
from quiesce.transport.shm import ShmReceiver, ShmSender
from quiesce.transport.tcp.inbound import Guest, Inbound
from quiesce.transport.tcp.leases import Armed, Leases
from quiesce.transport.tcp.receiver import TcpHost, TcpReceiver
from quiesce.transport.tcp.sender import TcpSender
from quiesce.transport.tcp.sockets import Stream
from quiesce.transport.tcp.spans import Spans

SHM, TCP = backend("shm"), backend("tcp")


class CallsEverythingQuiesced(TcpSender):
    def completions(self) -> list[Completion]:
        unknown = Outcome.FAILED_IN_FLIGHT
        return [
            replace(each, outcome=Outcome.FAILED_QUIESCED) if each.outcome is unknown else each
            for each in super().completions()
        ]


class SaysEverythingTwice(ShmSender):
    def completions(self) -> list[Completion]:
        return [each for each in super().completions() for _ in range(2)]


class StampsFirst(Placement):
    """The tag says landed before the bytes are there, and the last byte never comes."""

    def copy(self, placing: Placing, runs: object) -> None:
        """Nothing is copied."""


class EndsInWords(TcpSender):
    """Who closes a target is told that nothing comes any more."""

    def __init__(self, pool: Any, threads: int, call_deadline_s: float) -> None:
        super().__init__(pool, threads, call_deadline_s)
        self._due: set[int] = set()
        self._called: list[Completion] = []

    def launch(self, target: object, write: Write) -> None:
        self._due.add(write.id)
        super().launch(target, write)  # type: ignore[arg-type]

    def close_target(self, target: object) -> None:
        super().close_target(target)  # type: ignore[arg-type]
        self._called = [Completion(id_, Outcome.FAILED_QUIESCED, 0, 0.0) for id_ in self._due]

    def completions(self) -> list[Completion]:
        ended = [*self._called, *super().completions()]
        self._called = []
        first = {each.id: each for each in reversed(ended) if each.id in self._due}
        self._due -= first.keys()
        return list(first.values())


class RevokesInWords(TcpReceiver):
    def revoke(self, tag: PageTag) -> bool:
        return True


class ReadsAfterClose(TcpSender):
    """Its threads go on with what no deadline took from them."""

    def _give_up(self, flight: object) -> None:
        """Nothing."""

    def close(self) -> None:
        self._flights.close()


class FencesInWords(ShmReceiver):
    """Takes the order to kill for the death."""

    def watch(self, peer: Peer, pidfd: int, on_dead: OnDead, loop: asyncio.AbstractEventLoop) -> None:
        os.close(pidfd)
        self._told: Callable[[], object] = lambda: loop.call_soon(on_dead, peer)

    def kill(self, peer: Peer) -> None:
        self._told()


class BelievesTheDeath(TcpReceiver):
    """The writer's death is no fence where a kernel queues: its connections are left to end by themselves."""

    def _shut_out(self, ticket: bytes) -> None:
        """Nothing."""


class Spinning(TcpHost):
    """Asks for connections instead of waiting for them."""

    def _accept(self) -> None:
        self._listener.setblocking(False)
        while not self._closed.is_set():
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                continue
            except OSError:
                return
            sock.setblocking(True)
            self._begin(sock)


class SpinsWhenIdle(Spinning, TcpReceiver):
    """A receiver of that kind."""


class TrustsTheCaller(ShmSender):
    """Wraps a page number that is too high round the end of the pool."""

    def launch(self, target: object, write: Write) -> None:
        pages = write.target_pages % 32
        super().launch(target, replace(write, target_pages=pages))  # type: ignore[arg-type]


class CopiesALittleMore(Placement):
    """A word behind the last page: of nobody, where the pool ends there."""

    def copy(self, placing: Placing, runs: CopyRuns) -> None:
        super().copy(placing, runs)
        target = placing.target
        if target.pages - 1 in placing.write.target_pages:
            ctypes.memset(target.base_address + target.pages * target.layout.page_bytes, 0, 8)


WITH_THE_LOCK = ctypes.PyDLL(None)
"""The C library, called without letting go of the interpreter."""


class CopiesWithTheLock(Placement):
    def copy(self, placing: Placing, runs: CopyRuns) -> None:
        source, target, page_bytes = placing.source, placing.target, placing.source.layout.page_bytes
        for first, to, pages in zip(runs.source.tolist(), runs.target.tolist(), runs.pages.tolist(), strict=True):
            here = ctypes.c_void_p(source.base_address + first * page_bytes)
            there = ctypes.c_void_p(target.base_address + to * page_bytes)
            WITH_THE_LOCK.memmove(there, here, ctypes.c_size_t(pages * page_bytes))


def receive_with_the_lock(stream: Stream, spans: Spans) -> None:
    while spans.left_bytes:
        for view in spans.views(spans.left_bytes):
            memory = (ctypes.c_char * len(view)).from_buffer(view)
            fd = stream._sock.fileno()  # type: ignore[attr-defined]
            WITH_THE_LOCK.recv(fd, memory, ctypes.c_size_t(len(view)), 0x100)  # MSG_WAITALL
            spans.advance(len(view))


class TakesWithTheLock(Inbound):
    def _place(self, armed: Armed, runs: Any) -> bool:
        receive_with_the_lock(self._stream, self._spans(runs))
        return True


class ReceivesWithTheLock(TcpReceiver):
    def _guest(self, stream: Stream) -> Guest:
        return TakesWithTheLock(stream, self._pool, self._leases, self._key_of)


class WaitsForTheEnd(TcpSender):
    """Its `launch` comes back when the write has ended."""

    def __init__(self, pool: Any, threads: int, call_deadline_s: float) -> None:
        super().__init__(pool, threads, 0.5)

    def launch(self, target: object, write: Write) -> None:
        super().launch(target, write)  # type: ignore[arg-type]
        select.select([self.completion_fd], [], [])


class Unlimited(Leases):
    """Every page is of whatever lease a writer names."""

    def find(self, tag: int, pages: npt.NDArray[np.integer[Any]], slot: int | None) -> Armed | str:
        return Armed(PageTag(tag), pages, slot or 0)


class StaysOpen(TcpReceiver):
    """Its threads go on placing when it was closed."""

    def close(self) -> None:
        """Nothing."""


def _shm(sender: type[ShmSender] = ShmSender, receiver: type[ShmReceiver] = ShmReceiver) -> Backend:
    return replace(SHM, sender=sender, receiver=lambda pool, host, port: receiver(pool))


QUIESCED = replace(TCP, sender=CallsEverythingQuiesced)
ABORTED = replace(TCP, sender=EndsInWords)
TWICE = _shm(SaysEverythingTwice)
EMPTY = replace(SHM, sender=lambda pool, threads, deadline_s: ShmSender(pool, threads, deadline_s, StampsFirst()))
REVOKED = replace(TCP, receiver=RevokesInWords)
READING = replace(TCP, sender=ReadsAfterClose)
FENCED = _shm(receiver=FencesInWords)
DEATH = replace(TCP, receiver=BelievesTheDeath)
SPINNING = replace(TCP, receiver=SpinsWhenIdle)
BESIDE = replace(SHM, sender=lambda pool, threads, late_s: ShmSender(pool, threads, late_s, CopiesALittleMore()))
GREEDY = replace(SHM, sender=lambda pool, threads, late_s: ShmSender(pool, threads, late_s, CopiesWithTheLock()))
GRASPING = replace(TCP, receiver=ReceivesWithTheLock)
WAITING = replace(TCP, sender=WaitsForTheEnd)
AJAR = replace(TCP, receiver=StaysOpen)
UNLIMITED = replace(TCP, receiver=lambda pool, host, port: TcpReceiver(pool, host, port, Unlimited(pool.pages)))
WRAPPED = _shm(TrustsTheCaller)
NAMED = replace(SHM, name="pigeon", reach="as far as it flies")
HALF = replace(NAMED, capabilities=replace(SHM.capabilities, pull=True))
