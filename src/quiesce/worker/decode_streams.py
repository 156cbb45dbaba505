"""Prefill's side of the control streams: decode workers dial in and say HELLO; the handshake passes memory."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Protocol

import msgspec

from quiesce.control.connection import Connection, identity_of
from quiesce.control.handshake import Opened, accept, refuse
from quiesce.control.stream import FrameStream
from quiesce.errors import BadFrame, HandshakeRefused, PeerUnusable
from quiesce.ids import Peer
from quiesce.protocol import wire
from quiesce.protocol.hello import Hello, OtherVersion, version_differs
from quiesce.protocol.messages import Envelope
from quiesce.protocol.sender_io import DecodeLost, DecodeReplaced, Heard, SenderInput
from quiesce.worker.breaches import Breaches
from quiesce.worker.greeting import hello_of
from quiesce.worker.outlet import Outlet
from quiesce.worker.parts import Parts

log = logging.getLogger(__name__)

IMPOSTOR = "this incarnation belongs to another process"
_MOST_REFUSED = 1024
REPLACED = "a later life of this worker has joined; this one is over"


class StreamHost(Protocol):
    def feed(self, event: SenderInput) -> None: ...


class _Life(msgspec.Struct):
    """A decode life that is not known to be over. `pidfd` is -1 on another host; `key` is its identity's."""

    worker: str
    key: str
    pidfd: int


class DecodeStreams:
    """One stream per decode life, and the outlet hears of the life."""

    def __init__(self, parts: Parts, outlet: Outlet, host: StreamHost) -> None:
        self._parts = parts
        self._outlet = outlet
        self._host = host
        self._streams: dict[Peer, FrameStream[Envelope]] = {}
        self._lives: dict[Peer, _Life] = {}
        self._told: dict[Peer, str] = {}
        self._replaced: set[Peer] = set()
        self._refused: dict[str, str] = {}
        self._breaches = Breaches(parts.telemetry)
        self._ended: dict[Peer, str] = {}

    def send(self, envelope: Envelope) -> None:
        """Send to a decode life; without a stream the message is dropped and sent again by the machine's clock."""
        stream = self._streams.get(envelope.to)
        if stream is None or stream.closed:
            return
        try:
            stream.send(envelope)
        except PeerUnusable as error:
            self._say(logging.WARNING, "a decode worker does not read", stream.name, peer=envelope.to, reason=error)

    def breach(self, decode: Peer, problem: str) -> None:
        """A decode life told what cannot be, in a frame that can: it is disconnected as if the frame were bad."""
        stream = self._streams.get(decode)
        if stream is not None and not stream.closed:
            self._ended[decode] = problem
            stream.close()

    async def serve(self, sock: Connection, first: Hello) -> None:
        """Shake hands with a decode worker that dialled in and hear it until its stream ends."""
        decode, key = Peer(0, first.incarnation), identity_of(sock).key
        if problem := self._why_not(decode, key):
            self._tell_refused(first.worker, problem)
            refuse(sock, problem)
            return
        try:
            hello = hello_of(self._parts, self._outlet.capabilities)
            opened = await accept(sock, first, hello, lambda _: self._describe(decode, key))
            self._open(decode, opened, key)
            await self._close_older(decode)
        except PeerUnusable as error:
            self._tell_refused(first.worker, str(error))
            sock.close()
            return
        await self._hear(decode, FrameStream(sock, wire.decode, opened.hello.worker))

    def turn_away(self, sock: Connection, other: OtherVersion) -> None:
        """A decode worker of another version is never paired with; it is told why."""
        reason = version_differs(hello_of(self._parts, self._outlet.capabilities), other)
        self._tell_refused(other.worker, reason)
        refuse(sock, reason)

    def _tell_refused(self, worker: str, reason: str) -> None:
        """Logged once: whoever does not fit dials again every second."""
        self._parts.telemetry.inc("quiesce_refused_peers")
        if self._refused.get(worker) == reason:
            return
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
        self._refused[worker] = reason
        told = {"worker_name": worker, "reason": reason}  # the name is one that it only claims
        self._parts.lines.say(log, logging.WARNING, "a decode worker was not joined", f"refused {worker}", **told)

    def _say(self, level: int, what: str, worker: str, **told: object) -> None:
        self._parts.lines.say(log, level, what, worker, worker_name=worker, **told)

    def _why_not(self, decode: Peer, key: str) -> str:
        """A life is one process's: whoever else names it would speak, and be written to, in its place."""
        if decode in self._replaced:
            return REPLACED
        if reason := self._breaches.why_not(decode):
            return reason
        life, told = self._lives.get(decode), self._told.get(decode, key)
        return IMPOSTOR if told != key or (life is not None and life.key != key) else ""

    def _describe(self, decode: Peer, key: str) -> tuple[bytes, Sequence[int]]:
        """The own pool, as one process may see it: whoever speaks for this life later must be that process."""
        if problem := self._why_not(decode, key):  # while this one said HELLO another stream of the life did
            raise HandshakeRefused(problem)
        self._told[decode] = key
        return self._outlet.describe(decode)

    async def _close_older(self, decode: Peer) -> None:
        """A new stream of the same life: what lies unread in the older one is dropped first (rule 9)."""
        older = self._streams.pop(decode, None)
        if older is not None:
            older.close()
            await older.wait_closed()

    def _open(self, decode: Peer, opened: Opened, key: str) -> None:
        """Let the outlet join a life that is new, and watch it: only the kernel says when it is over (rule 9)."""
        try:
            if problem := self._why_not(decode, key):  # while this one said HELLO another stream of the life did
                raise HandshakeRefused(problem)
            if decode not in self._lives:
                self._outlet.join(decode, opened)
                life = self._lives[decode] = _Life(opened.hello.worker, key, opened.pidfd)
                opened.pidfd = -1
                if life.pidfd >= 0:
                    asyncio.get_running_loop().add_reader(life.pidfd, self._decode_died, decode)
                else:
                    self._replace_older(decode, life)
        finally:
            opened.close()

    def _replace_older(self, decode: Peer, life: _Life) -> None:
        """On another host no kernel says that a life is over: the next one of that name does, and it is never heard
        again."""
        older = [d for d, its in self._lives.items() if its.worker == life.worker and its.pidfd < 0 and d != decode]
        for each in older:
            self._replaced.add(each)
            if (stream := self._streams.pop(each, None)) is not None:
                stream.close()
            self._decode_died(each)

    def _decode_died(self, decode: Peer) -> None:
        worker = self._forget(decode)
        self._say(logging.INFO, "a decode worker is gone", worker, peer=decode)
        self._host.feed(DecodeReplaced(decode))
        self._outlet.part(decode)

    def _forget(self, decode: Peer) -> str:
        """A life that is over, or is watched no more; whose it was."""
        life = self._lives.pop(decode)
        self._told.pop(decode, None)
        if life.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(life.pidfd)
            os.close(life.pidfd)
        return life.worker

    async def _hear(self, decode: Peer, stream: FrameStream[Envelope]) -> None:
        self._streams[decode] = stream
        self._refused.pop(stream.name, None)
        self._say(logging.INFO, "a decode worker joined", stream.name, peer=decode)
        try:
            while (envelope := await stream.receive()) is not None:
                self._check_sender(envelope, decode)
                self._host.feed(Heard(envelope))
            if problem := self._ended.pop(decode, ""):
                raise BadFrame(problem)
        except BadFrame as error:
            reason = self._breaches.note(decode, str(error))
            self._say(logging.WARNING, "a decode worker is disconnected", stream.name, peer=decode, reason=reason)
        finally:
            stream.close()
            if self._streams.get(decode) is stream:
                del self._streams[decode]
                self._say(logging.INFO, "a decode worker's stream ended", stream.name, peer=decode)
                self._host.feed(DecodeLost(decode))

    def _check_sender(self, envelope: Envelope, decode: Peer) -> None:
        if envelope.sender.incarnation != decode.incarnation:
            raise BadFrame(f"it speaks for {envelope.sender}, but said HELLO as {decode}")

    def close(self) -> None:
        for stream in list(self._streams.values()):
            stream.close()
        for decode in list(self._lives):
            self._forget(decode)
