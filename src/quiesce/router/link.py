"""One worker as the router sees it: a stream that is dialled again for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from typing import Protocol

from quiesce.control.address import Address, TcpAddress, show_address
from quiesce.control.connection import require_grant
from quiesce.control.dialing import connect
from quiesce.control.dispatch_codec import decode_worker_frame
from quiesce.control.restraint import Restraint
from quiesce.control.security import LOCAL, Security
from quiesce.control.stream import FrameStream
from quiesce.control.tcp import End, ends
from quiesce.errors import PeerUnusable
from quiesce.protocol.dispatch import (
    LEAVING,
    ROUTER,
    Attach,
    Load,
    Peers,
    Ping,
    Pong,
    RouterFrame,
    Welcome,
    WorkerFrame,
)
from quiesce.telemetry.logs import ids

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_GREETING_S = 10.0
_MOST_UNANSWERED = 5
_GIVEN_UP_AT = 30
"""Pings without an answer, after which nobody waits for what the worker was asked."""

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who is told what happens on a link. `stopping`: links end because we end them."""

    stopping: bool
    restraint: Restraint

    def why_not(self, link: WorkerLink, welcome: Welcome) -> str:
        """Why who greeted on this link cannot be used, or ""."""

    def on_frame(self, link: WorkerLink, frame: WorkerFrame) -> None: ...
    def on_lost(self, link: WorkerLink) -> None: ...
    def on_change(self) -> None: ...
    def on_silent(self, link: WorkerLink) -> None:
        """The worker is connected and has not answered for a while."""

    def on_given_up(self, link: WorkerLink) -> None:
        """It has not answered for so long that nobody should wait for it."""

    def on_new_life(self, link: WorkerLink) -> None:
        """A worker that had been here before came back as another life."""


class WorkerLink:
    """`welcome` is None while the worker is not connected; `load` and `peers` are what it said last in this life.

    A `dismissed` one gets nothing new. `halves` counts what was submitted on this link and has not ended, which `load`
    may not know of yet; `reserved` what is about to be. At a decode worker `awaited` is what each prefill worker has
    not handed off to it, reserved or submitted. `ends` are ours and its of a TCP connection.
    """

    def __init__(self, address: Address, listener: Listener, security: Security = LOCAL) -> None:
        self.address = address
        self._security = security
        self.welcome: Welcome | None = None
        self.dismissed = False
        self.ends: tuple[End, End] | None = None
        self.load = Load(0, 0, 0)
        self.peers: tuple[str, ...] = ()
        self.troubles: tuple[tuple[str, str], ...] = ()
        self.halves = self.reserved = 0
        self.awaited: Counter[WorkerLink] = Counter()
        self._unanswered_pings = 0
        self._heard_s = 0.0
        self._listener = listener
        self._life = self._trouble = ""
        self._stream: FrameStream[WorkerFrame] | None = None

    @property
    def trouble(self) -> str:
        """Why it could not be reached or used when that was tried last, or ""."""
        return self._trouble

    @property
    def name(self) -> str:
        """The worker's name, or its address until it has said its name."""
        return self.welcome.worker if self.welcome else show_address(self.address)

    @property
    def answers(self) -> bool:
        """False from the ping after five that found no answer until the worker says anything at all."""
        return self._unanswered_pings <= _MOST_UNANSWERED

    @property
    def heard(self) -> str:
        """When it said something last, as UTC for people."""
        return time.strftime("%H:%M:%SZ", time.gmtime(self._heard_s))

    @property
    def generates(self) -> bool:
        """Whether answers come from it, now that it is here."""
        return self.welcome is not None and self.welcome.role != "prefill"

    @property
    def load_now(self) -> int:
        """Requests that run or wait there, as far as anybody here knows."""
        return max(self.load.running + self.load.waiting, self.halves + self.reserved)

    def ping(self) -> None:
        """Ask whether the worker is there; called once a second.

        Pings are counted rather than timed: when it was the router that slept, no worker is to blame.
        """
        if self.welcome is None:
            return
        asks = self.answers
        self._unanswered_pings += 1
        if asks:  # else pings that wait for it will be answered when it wakes
            self.send(Ping(self._unanswered_pings))
        if asks and not self.answers:
            self._fall_silent()
        if self._unanswered_pings == _GIVEN_UP_AT:
            self._listener.on_given_up(self)

    def _fall_silent(self) -> None:
        reason = f"nothing was heard from it since {self.heard}"
        _log.warning("worker does not answer", extra=ids(worker_name=self.name, reason=reason))
        self._listener.on_change()
        self._listener.on_silent(self)

    def send(self, frame: RouterFrame) -> None:
        """Queue one frame. A worker that is gone or does not read is reported as lost, not here."""
        if self._stream is None:
            return
        try:
            self._stream.send(frame)
        except PeerUnusable as error:
            _log.warning("closed the stream to a worker", extra=ids(worker_name=self.name, reason=error))

    async def run(self) -> None:
        """Connect, listen, connect again, until cancelled."""
        wait_s = _FIRST_WAIT_S
        while True:
            wait_s = _FIRST_WAIT_S if await self._live() else min(2 * wait_s, _LONGEST_WAIT_S)
            await asyncio.sleep(wait_s)

    async def _live(self) -> bool:
        """One connection, from dialling to its end; whether the worker had greeted."""
        try:
            self._stream = await self._connect()
            self._stream.send(Attach(ROUTER))
            return await self._listen(self._stream)
        except PeerUnusable as error:
            self._tell_trouble(str(error))
        except Exception:  # a bug of ours must not end the link for ever
            _log.exception("a link failed", extra=ids(worker_name=self.name))
        finally:
            self._end()
        return False

    def _tell_trouble(self, reason: str) -> None:
        """Once: that a worker cannot be dialled is seen every second, perhaps until somebody starts it."""
        level = logging.WARNING if self._stream or isinstance(self.address, TcpAddress) else logging.DEBUG
        if level == logging.DEBUG or reason != self._trouble:
            self._say(level, "a worker cannot be used", reason=reason)
        self._trouble = reason

    def _say(self, level: int, what: str, **told: object) -> None:
        """In the log, but not again and again of an address that comes and goes."""
        if (unsaid := self._listener.restraint.unsaid(f"link {show_address(self.address)}")) is not None:
            _log.log(level, what, extra=ids(worker_name=self.name, unsaid=unsaid or None, **told))

    async def _connect(self) -> FrameStream[WorkerFrame]:
        with contextlib.closing(await connect(self.address, security=self._security)) as sock:
            self.ends = ends(sock)
            # Closing does nothing once the stream has taken the descriptor.
            return FrameStream(sock, decode_worker_frame, show_address(self.address))

    async def _listen(self, stream: FrameStream[WorkerFrame]) -> bool:
        try:
            async with asyncio.timeout(_GREETING_S):
                greeting = await stream.receive()
        except TimeoutError:
            raise PeerUnusable(f"it did not greet within {_GREETING_S:g} s", took_effect=False) from None
        if greeting is None and stream.trouble:
            raise PeerUnusable(f"it hung up: {stream.trouble}", took_effect=False)
        if not isinstance(greeting, Welcome):
            return False
        require_grant(stream.identity, greeting.role, greeting.worker)
        if problem := self._listener.why_not(self, greeting):
            raise PeerUnusable(problem, took_effect=False)
        self._greet(greeting)
        while (frame := await stream.receive()) is not None:
            self._heard()
            self._take(frame)
        return True

    def _heard(self) -> None:
        self._heard_s = time.time()
        silent, self._unanswered_pings = not self.answers, 0
        if silent:
            _log.info("worker answers again", extra=ids(worker_name=self.name))
            self._listener.on_change()

    def _greet(self, welcome: Welcome) -> None:
        self.welcome, self.load, self.peers = welcome, Load(0, 0, 0, ready=False, reason="has not told its load"), ()
        self._unanswered_pings, self._trouble, self._heard_s = 0, "", time.time()
        self._say(logging.INFO, "worker is here", incarnation=welcome.incarnation)
        if self._life not in ("", welcome.incarnation):
            self._listener.on_new_life(self)
        self._life = welcome.incarnation
        self._listener.on_change()

    def _take(self, frame: WorkerFrame) -> None:
        match frame:
            case Load():
                self.load = frame
                self._listener.on_change()
            case Peers():
                self.peers, self.troubles = frame.prefills, frame.troubles
                self._listener.on_change()
            case Pong():
                pass  # that something was heard is all it says
            case Welcome():
                raise PeerUnusable("it greeted twice", took_effect=False)
            case _:
                self._listener.on_frame(self, frame)

    def _farewell(self) -> str:
        """Why there is no stream any more, as far as it is known: whom nobody names is let go, alive or not."""
        let_go = self.dismissed and not (self.halves or self.reserved) and self.load.reason != LEAVING
        return "worker is no longer named" if let_go else "worker is gone"

    def _end(self) -> None:
        """The stream is over, if there was one: everything that was asked of this worker has failed."""
        self.ends = None
        if self._stream is None:
            return
        self._stream.close()
        self._stream = None
        if self.welcome is not None:
            told = logging.INFO if self.dismissed or self.load.reason == LEAVING else logging.WARNING
            level = logging.DEBUG if self._listener.stopping else told
            self._say(level, self._farewell(), incarnation=self.welcome.incarnation)
            self._listener.on_lost(self)
        self.welcome, self.peers, self.troubles = None, (), ()
        self._listener.on_change()
