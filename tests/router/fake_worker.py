"""A worker that speaks the real frames over a real Unix socket, and does what its test tells it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np

from quiesce.control.dispatch_codec import decode_router_frame
from quiesce.control.stream import FrameStream, Listener, first_frame, listen
from quiesce.ids import RequestId, mint_incarnation
from quiesce.protocol.dispatch import (
    DISPATCH_VERSION,
    Accepted,
    Attach,
    Cancel,
    Failed,
    Flush,
    Flushed,
    HandedOff,
    Inspect,
    Inspected,
    Load,
    Peers,
    Ping,
    Pong,
    RouterFrame,
    Scrape,
    Scraped,
    Submit,
    Tokens,
    Welcome,
    WorkerFrame,
    WorkerSnapshot,
)
from quiesce.protocol.messages import Failure, Fault

OnSubmit = Callable[["FakeWorker", Submit], None]

METRICS = '# HELP fake_pages Pages.\n# TYPE fake_pages gauge\nfake_pages{{worker="{name}"}} 7.0\n'
PROBE_TOKENS = 2


def words(text: str) -> tuple[int, ...]:
    """Tokens of the `tiny` model: bytes."""
    return tuple(text.encode())


def say(*pieces: str, finish: str = "stop", cached: int = 0) -> OnSubmit:
    """Decode's part: one Tokens frame for each piece, the last with `finish` ("" leaves the answer open)."""

    def on_submit(worker: FakeWorker, submit: Submit) -> None:
        for index, piece in enumerate(pieces):
            last = index == len(pieces) - 1
            worker.send(Tokens(submit.request, words(piece), finish if last else "", cached))

    return on_submit


def fail(code: str = "boom", fault: Fault = Fault.DECODE, status: int = 500, rejected: bool = False) -> OnSubmit:
    def on_submit(worker: FakeWorker, submit: Submit) -> None:
        worker.send(Failed(submit.request, Failure(code, f"It went {code}.", fault, status), rejected))

    return on_submit


def hand_off(worker: FakeWorker, submit: Submit) -> None:
    worker.send(HandedOff(submit.request))


def nothing(worker: FakeWorker, submit: Submit) -> None:
    """The request stays open."""


class FakeWorker:
    """`plans` are used up one per request (probes excepted), then `plan`. Frames from routers are kept in `seen`."""

    def __init__(self, path: Path, name: str, role: str, plan: OnSubmit, peers: tuple[str, ...] = ()) -> None:
        self.path, self.name, self.role = path, name, role
        self.plan, self.plans = plan, list[OnSubmit]()
        self.peers = peers
        self.probe_plan: OnSubmit = hand_off if role == "prefill" else say("ok", finish="length")
        self.context_length = self.pool_tokens = 4096
        self.landing_tokens = 0
        self.model = "tiny"
        self.version = DISPATCH_VERSION
        self.load = Load(0, 0, 4096)
        self.incarnation = mint_incarnation()
        self.frozen = False
        self.flushes = True
        self.snapshot: WorkerSnapshot | None = None
        self.seen: list[RouterFrame] = []
        self._arrived = asyncio.Condition()
        self._streams: list[FrameStream[RouterFrame]] = []
        self._listener: Listener | None = None

    @property
    def address(self) -> str:
        return f"unix:{self.path}"

    @property
    def submits(self) -> list[Submit]:
        return [frame for frame in self.seen if isinstance(frame, Submit)]

    @property
    def cancels(self) -> list[Cancel]:
        return [frame for frame in self.seen if isinstance(frame, Cancel)]

    async def start(self) -> None:
        self._listener = await listen(self.path, self._serve)

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()
        self.drop()

    def drop(self) -> None:
        """Lose all streams, as a crash does; a new life begins."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        self.incarnation = mint_incarnation()

    def send(self, frame: WorkerFrame) -> None:
        for stream in self._streams:
            stream.send(frame)

    async def submitted(self, count: int = 1) -> Submit:
        """Wait for the request of that number."""
        await self._until(lambda: len(self.submits) >= count)
        return self.submits[count - 1]

    async def cancelled(self, count: int = 1) -> Cancel:
        """Wait for the cancellation of that number."""
        await self._until(lambda: len(self.cancels) >= count)
        return self.cancels[count - 1]

    def fail(self, request: RequestId, fault: Fault) -> None:
        self.send(Failed(request, Failure("boom", "It went boom.", fault)))

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(true)

    async def _serve(self, sock: socket.socket) -> None:
        assert isinstance(await first_frame(sock, decode_router_frame), Attach)
        stream: FrameStream[RouterFrame] = FrameStream(sock, decode_router_frame, "router")
        self._streams.append(stream)
        for greeting in self._greeting():
            stream.send(greeting)
        while (frame := await stream.receive()) is not None:
            await self._take(frame)
        stream.close()

    def _greeting(self) -> list[WorkerFrame]:
        limits = (self.context_length, self.pool_tokens, 16, 256)
        about = (self.name, self.role, self.incarnation, self.model, "fingerprint")
        welcome = Welcome(*about, *limits, version=self.version, landing_tokens=self.landing_tokens)
        return [welcome, *([Peers(self.peers)] if self.peers else []), self.load]

    async def _take(self, frame: RouterFrame) -> None:
        if isinstance(frame, Ping):
            if not self.frozen:
                self.send(Pong(frame.serial))
        elif isinstance(frame, Scrape):
            self.send(Scraped(frame.serial, METRICS.format(name=self.name)))
        elif isinstance(frame, Inspect):
            if self.snapshot is not None:
                self.send(Inspected(frame.serial, self.snapshot))
        elif isinstance(frame, Flush) and self.flushes:
            self.seen.append(frame)
            self.send(Flushed(frame.serial))
        elif isinstance(frame, Submit) and is_probe(frame):
            self.probe_plan(self, frame)
        else:
            if isinstance(frame, Submit):
                self.send(Accepted(frame.request))
                (self.plans.pop(0) if self.plans else self.plan)(self, frame)
            async with self._arrived:
                self.seen.append(frame)
                self._arrived.notify_all()


def is_probe(submit: Submit) -> bool:
    return bytes(np.frombuffer(submit.token_ids, "<u4").astype(np.uint8)) == b"Ready?"
