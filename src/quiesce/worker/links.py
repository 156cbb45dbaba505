"""Connections of routers (and of `quiesce inspect`) to this worker: frames in, frames out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from quiesce.control.connection import Connection, identity_of, require_grant
from quiesce.control.dispatch_codec import decode_router_frame
from quiesce.control.stream import FrameStream
from quiesce.errors import BadFrame, PeerUnusable
from quiesce.protocol.dispatch import (
    ROUTER,
    Attach,
    Cancel,
    Flush,
    Flushed,
    Inspect,
    Inspected,
    Ping,
    Pong,
    RouterFrame,
    Scrape,
    Scraped,
    Submit,
    Trace,
    Traced,
    WorkerFrame,
    WorkerSnapshot,
)
from quiesce.worker.peer_lines import PeerLines
from quiesce.worker.trace_ring import TraceRing

log = logging.getLogger(__name__)


class Link:
    """One attached router. Sending to one that left does nothing: its loss is handled where it is read."""

    def __init__(self, stream: FrameStream[RouterFrame], name: str, lines: PeerLines) -> None:
        self.stream = stream
        self.name = name
        self._lines = lines

    def send(self, frame: WorkerFrame) -> None:
        if self.stream.closed:
            return
        try:
            self.stream.send(frame)
        except PeerUnusable as error:
            self.warn("a router does not read", error)

    def warn(self, what: str, reason: PeerUnusable) -> None:
        self._lines.say(log, logging.WARNING, what, f"router {self.name}", worker_name=self.name, reason=reason)


class LinkOwner(Protocol):
    """The worker, as its links see it."""

    trace: TraceRing

    def greeting(self) -> list[WorkerFrame]: ...
    def submit(self, frame: Submit, link: Link) -> None: ...
    def cancel(self, frame: Cancel, link: Link) -> None: ...
    def link_lost(self, link: Link) -> None: ...
    def metrics(self) -> str: ...
    def snapshot(self) -> WorkerSnapshot: ...
    def flush(self, done: Callable[[], None]) -> None: ...


class Links:
    """All attached routers."""

    def __init__(self, owner: LinkOwner, lines: PeerLines) -> None:
        self._owner = owner
        self._lines = lines
        self._links: set[Link] = set()

    async def serve(self, sock: Connection, attach: Attach) -> None:
        """Serve one connection until it ends. Raises HandshakeRefused when it may not do what routers do."""
        require_grant(identity_of(sock), ROUTER, "")
        link = Link(FrameStream(sock, decode_router_frame, attach.name), attach.name, self._lines)
        self._links.add(link)
        try:
            for frame in self._owner.greeting():
                link.send(frame)
            while (frame_in := await link.stream.receive()) is not None:
                self._handle(frame_in, link)
        except BadFrame as error:
            link.warn("a router sent a bad frame and is disconnected", error)
        finally:
            self._links.discard(link)
            link.stream.close()
            self._owner.link_lost(link)

    def _handle(self, frame: RouterFrame, link: Link) -> None:
        match frame:
            case Submit():
                self._owner.submit(frame, link)
            case Cancel():
                self._owner.cancel(frame, link)
            case Scrape(serial):
                link.send(Scraped(serial, self._owner.metrics()))
            case Inspect(serial):
                link.send(Inspected(serial, self._owner.snapshot()))
            case Ping(serial):
                link.send(Pong(serial))
            case Flush(serial):
                self._owner.flush(lambda: link.send(Flushed(serial)))
            case Trace(serial):
                link.send(Traced(serial, self._owner.trace.lines()))
            case Attach():
                raise BadFrame("attach came twice on one connection")

    @property
    def routers(self) -> int:
        """How many are attached; who only looks is none."""
        return sum(link.name == ROUTER for link in self._links)

    def broadcast(self, frame: WorkerFrame) -> None:
        for link in list(self._links):
            link.send(frame)

    async def flush(self, within_s: float) -> None:
        """Wait until the kernel has what was said to every router, but no longer than this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for link in list(self._links):
                    await link.stream.flush()

    def close(self) -> None:
        for link in list(self._links):
            link.stream.close()
