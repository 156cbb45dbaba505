"""Decode's side of the control streams: it dials each prefill worker, passes its memory, and dials again when lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from quiesce.control.address import Address, show_address
from quiesce.control.dialing import connect
from quiesce.control.handshake import Opened, offer
from quiesce.control.stream import FrameStream
from quiesce.control.whereabouts import Places
from quiesce.errors import BadFrame, HandshakeRefused, PeerUnusable
from quiesce.ids import Peer
from quiesce.protocol import wire
from quiesce.protocol.dispatch import MOST_TROUBLE_CHARS, MOST_TROUBLES
from quiesce.protocol.hello import Hello
from quiesce.protocol.messages import Envelope
from quiesce.protocol.receiver_io import PeerReplaced, Received, ReceiverInput, StreamLost
from quiesce.worker.breaches import Breaches
from quiesce.worker.greeting import hello_of
from quiesce.worker.intake import Intake
from quiesce.worker.parts import Parts
from quiesce.worker.timers import backoff_s

log = logging.getLogger(__name__)

_MOST_SAID = 16


class StreamHost(Protocol):
    draining: bool

    def feed(self, event: ReceiverInput) -> None: ...
    def peers_changed(self) -> None: ...
    def give_up(self, error: BaseException) -> None: ...


class PrefillStreams:
    """One stream per prefill worker that is expected; each address is dialled for as long as it is."""

    def __init__(self, parts: Parts, intake: Intake, host: StreamHost) -> None:
        self._parts = parts
        self._intake = intake
        self._host = host
        self._places: Places = {}
        self._streams: dict[Peer, FrameStream[Envelope]] = {}
        self._homes: dict[str, Address] = {}
        self._lives: dict[str, Peer] = {}
        self._troubles: dict[Address, str] = {}
        self._breaches = Breaches(parts.telemetry)
        self._ended: dict[Peer, str] = {}
        self._tasks: dict[Address, asyncio.Task[None]] = {}

    def expect(self, places: Places) -> None:
        """There are the prefill workers from now on. One that is no longer named gets nothing new.

        Its stream stays until it hangs up: what is under way ends as it would have, and is proved as ever.
        """
        self._places = places
        self._tasks = {address: task for address, task in self._tasks.items() if not task.done()}
        self._troubles = {address: told for address, told in self._troubles.items() if address in places}
        for address in places:
            if address not in self._tasks:
                self._tasks[address] = asyncio.create_task(self._keep(address), name=f"peer {show_address(address)}")
        self._host.peers_changed()

    def grants_of(self, name: str) -> tuple[Peer, ...]:
        """The ranks of a prefill worker whose stream is up; () when it cannot be paired with now."""
        life = self._lives.get(name)
        if life is None or life not in self._streams:
            return ()
        return (life,) if self._places.get(self._homes[name]) in ("", name) else ()

    def up(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._lives if self.grants_of(name)))

    def troubles(self) -> tuple[tuple[str, str], ...]:
        """Who is expected and cannot be paired with, and why."""
        told = [(address, self._troubles[address]) for address in self._places if address in self._troubles]
        named = [(self._places[address] or show_address(address), reason) for address, reason in told]
        return tuple((name[:MOST_TROUBLE_CHARS], why[:MOST_TROUBLE_CHARS]) for name, why in named[:MOST_TROUBLES])

    def send(self, envelope: Envelope) -> None:
        """Send to a prefill life; without a stream the message is dropped and sent again by the machine's clock."""
        stream = self._streams.get(envelope.to)
        if stream is None or stream.closed:
            return
        try:
            stream.send(envelope)
        except PeerUnusable as error:
            self._say(logging.WARNING, "a prefill worker does not read", stream.name, peer=envelope.to, reason=error)

    def breach(self, prefill: Peer, problem: str) -> None:
        """A prefill life told what cannot be, in a frame that can: it is disconnected as if the frame were bad."""
        stream = self._streams.get(prefill)
        if stream is not None and not stream.closed:
            self._ended[prefill] = problem
            stream.close()

    async def _keep(self, address: Address) -> None:
        """Dial one prefill worker while it is named. An error that nobody foresaw ends this worker, not just the
        dialling."""
        try:
            round_, said = 0, set[str]()
            while address in self._places:
                joined, trouble = await self._try(address)
                round_, said = (0, set()) if joined else (round_ + 1, said)
                self._note_trouble(address, trouble, is_news=trouble not in said)
                said = {*said, trouble} if len(said) < _MOST_SAID else {trouble}
                await asyncio.sleep(backoff_s(0.05, round_, most_s=1.0))
        except Exception as error:
            self._host.give_up(error)

    def _note_trouble(self, address: Address, trouble: str, *, is_news: bool) -> None:
        """In the log once until it joins: a network that is down fails in one way, then another, then the first."""
        if is_news:
            self._log_trouble(address, trouble)
        if self._troubles.get(address) != trouble:
            self._troubles[address] = trouble
            self._host.peers_changed()

    def _log_trouble(self, address: Address, trouble: str) -> None:
        """The end of one that nobody names any more is no trouble, nor that of others while this worker ends."""
        expected = address in self._places and not self._host.draining
        level = logging.WARNING if expected else logging.INFO
        name = self._places.get(address) or show_address(address)
        self._say(level, "a prefill worker cannot be used", name, reason=trouble)

    def _say(self, level: int, what: str, worker: str, **told: object) -> None:
        self._parts.lines.say(log, level, what, worker, worker_name=worker, **told)

    async def _try(self, address: Address) -> tuple[bool, str]:
        """Connect and hear a prefill worker until its stream ends; whether it was joined, and what ended it."""
        joined = False
        try:
            opened, stream = await self._connect(address)
            joined = True
            await self._hear(address, opened, stream)
        except PeerUnusable as error:
            if isinstance(error, HandshakeRefused):
                self._parts.telemetry.inc("quiesce_refused_peers")
            return joined, str(error)
        return joined, "its stream ended"

    async def _connect(self, address: Address) -> tuple[Opened, FrameStream[Envelope]]:
        sock = await connect(address, 5.0, self._parts.security)
        hello = hello_of(self._parts, self._intake.capabilities)

        def describe(theirs: Hello) -> tuple[bytes, Sequence[int]]:
            """Nothing was opened yet: who is refused here keeps the stream that it may have with us already."""
            if problem := self._why_not(address, theirs):
                raise HandshakeRefused(problem)
            return self._intake.describe(Peer(0, theirs.incarnation))

        opened = await offer(sock, hello, describe)
        if problem := self._why_not(address, opened.hello):  # another address led there meanwhile
            opened.close()
            sock.close()
            raise HandshakeRefused(problem)
        return opened, FrameStream(sock, wire.decode, opened.hello.worker)

    def _why_not(self, address: Address, hello: Hello) -> str:
        """Why the worker that answered must not be joined, or ""."""
        name, expected, life = hello.worker, self._places.get(address, ""), self._lives.get(hello.worker)
        if expected not in ("", name):
            return f"at {show_address(address)} is {name!r}, which is expected to be {expected!r}"
        if reason := self._breaches.why_not(Peer(0, hello.incarnation)):
            return reason
        if self._intake.is_shut_out(Peer(0, hello.incarnation)):
            return f"this life of {name} was fenced: it may write here no more"
        if life is not None and life in self._streams:
            same = "it" if life.incarnation == hello.incarnation else f"another {name}"
            return f"{same} is joined already, at {show_address(self._homes[name])}"
        return ""

    async def _hear(self, address: Address, opened: Opened, stream: FrameStream[Envelope]) -> None:
        name, prefill = opened.hello.worker, Peer(0, opened.hello.incarnation)
        try:
            self._join(name, prefill, opened)
        except PeerUnusable:
            stream.close()
            raise
        self._homes[name] = address
        self._streams[prefill] = stream
        self._troubles.pop(address, None)
        self._say(logging.INFO, "a prefill worker joined", name, peer=prefill)
        self._host.peers_changed()
        try:
            while (envelope := await stream.receive()) is not None:
                if envelope.sender != prefill:
                    raise BadFrame(f"it speaks for {envelope.sender}, but said HELLO as {prefill}")
                self._host.feed(Received(envelope))
            if problem := self._ended.pop(prefill, ""):
                raise BadFrame(problem)
        except BadFrame as error:
            raise BadFrame(self._breaches.note(prefill, str(error))) from error
        finally:
            stream.close()
            del self._streams[prefill]
            self._host.peers_changed()
            self._host.feed(StreamLost(prefill))
            self._intake.leave(prefill)

    def _join(self, name: str, prefill: Peer, opened: Opened) -> None:
        """Note which life answers to the name now. Raises HandshakeRefused, and then nothing was noted."""
        try:
            self._intake.join(prefill, opened)
        finally:
            opened.close()
        old = self._lives.get(name)
        self._lives[name] = prefill
        if old is not None and old != prefill:
            self._host.feed(PeerReplaced(old))
            self._intake.part(old)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
