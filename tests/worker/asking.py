"""A router's end of workers' sockets: submits halves of requests, and hears what comes of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiesce.control.dispatch_codec import decode_worker_frame
from quiesce.control.stream import FrameStream, dial
from quiesce.ids import RequestId
from quiesce.protocol.dispatch import (
    Accepted,
    Attach,
    Cancel,
    Failed,
    Flushed,
    HandedOff,
    Inspect,
    Inspected,
    Load,
    Peers,
    Scrape,
    Scraped,
    Tokens,
    Trace,
    Traced,
    Welcome,
    WorkerFrame,
    WorkerSnapshot,
)
from quiesce.protocol.messages import Failure, Fault

from .gate import LONG_S
from .requests import submit
from .rig import alone

BOTH = ("prefill-0", "decode-0")
CLIENT_LEFT = Failure("client_closed_request", "The client closed the connection.", Fault.CLIENT, 499)

T = TypeVar("T")


class Ask:
    """One request and what its halves said of it, by worker."""

    def __init__(self, desk: Desk, request: RequestId, room: int, ids: NDArray[np.int32]) -> None:
        self.desk = desk
        self.request = request
        self.room = room
        self.ids = ids
        self.tokens: list[int] = []
        self.heard: list[tuple[str, WorkerFrame]] = []

    async def end(self, worker: str) -> str:
        """How a worker's half ended: stop, length, handed_off, or a failure's code."""
        return await self.desk.until(lambda: self._end(worker))

    async def answers(self, max_tokens: int) -> None:
        """Decode ends it at its length, with what an engine says that is asked alone."""
        assert await self.end("decode-0") == "length"
        assert self.tokens == alone(self.ids, max_tokens)

    async def accepted(self, worker: str) -> None:
        await self.desk.until(lambda: any(w == worker and isinstance(f, Accepted) for w, f in self.heard))

    async def said(self, count: int) -> None:
        """Wait for so many tokens."""
        await self.desk.until(lambda: len(self.tokens) >= count)

    def _end(self, worker: str) -> str:
        return next((end for w, frame in self.heard if w == worker and (end := _end_of(frame))), "")


class Desk:
    """Attached to some workers. `async with`-less: call `close`."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self.asks: dict[RequestId, Ask] = {}
        self.peers: dict[str, tuple[str, ...]] = {}
        self.troubles: dict[str, tuple[tuple[str, str], ...]] = {}
        self.ready: dict[str, bool] = {}
        self.flushed: dict[str, int] = {}
        self.welcomes: dict[str, Welcome] = {}
        self.streams: dict[str, FrameStream[WorkerFrame]] = {}
        self._answers: dict[int, Inspected | Scraped | Traced] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._news = asyncio.Condition()

    async def attach(self, name: str, path: Path) -> Welcome:
        stream: FrameStream[WorkerFrame] = FrameStream(await dial(path), decode_worker_frame, name)
        stream.send(Attach("desk"))
        self.streams[name] = stream
        for said in (self.welcomes, self.peers, self.ready):  # by an earlier life
            said.pop(name, None)
        self._readers.append(asyncio.create_task(self._read(name, stream)))
        return await self.until(lambda: self.welcomes.get(name))

    async def _read(self, name: str, stream: FrameStream[WorkerFrame]) -> None:
        while (frame := await stream.receive()) is not None:
            self._hear(name, frame)
            async with self._news:
                self._news.notify_all()
        stream.close()
        async with self._news:
            self._news.notify_all()

    def _hear(self, name: str, frame: WorkerFrame) -> None:
        match frame:
            case Welcome():
                self.welcomes[name] = frame
            case Peers(prefills, troubles):
                self.peers[name], self.troubles[name] = prefills, troubles
            case Load():
                self.ready[name] = frame.ready
            case Flushed():
                self.flushed[name] = self.flushed.get(name, 0) + 1
            case Inspected(serial) | Scraped(serial) | Traced(serial):
                self._answers[serial] = frame
            case Accepted(request) | HandedOff(request) | Failed(request) | Tokens(request):
                ask = self.asks[request]
                ask.heard.append((name, frame))
                ask.tokens += frame.token_ids if isinstance(frame, Tokens) else ()

    async def until(self, look: Callable[[], T | None]) -> T:
        """Wait until `look` gives something true; it is asked again after each frame from any worker."""
        async with asyncio.timeout(LONG_S), self._news:
            while not (found := look()):
                await self._news.wait()
            return found

    async def paired(self, decode: str, *prefills: str) -> None:
        await self.until(lambda: set(prefills) <= set(self.peers.get(decode, ())))

    async def gone(self, worker: str) -> None:
        """Wait until a worker hung up."""
        await self.until(lambda: self.streams[worker].closed)

    # ------------------------------------------------------------ requests

    def ask(self, ids: NDArray[np.int32], *workers: str, **changes: Any) -> Ask:
        """Submit the same request to these workers, in this order."""
        number = next(self._numbers)
        frame = submit(ids, f"req-{number}", number, **changes)
        ask = Ask(self, frame.request, number, ids)
        self.asks[frame.request] = ask
        for worker in workers:
            self.streams[worker].send(frame)
        return ask

    def again(self, ask: Ask, worker: str, **changes: Any) -> None:
        """Submit a request to one more worker, but asking for something else."""
        self.streams[worker].send(submit(ask.ids, ask.request, ask.room, **changes))

    def cancel(self, ask: Ask, *workers: str) -> None:
        for worker in workers:
            self.streams[worker].send(Cancel(ask.request, CLIENT_LEFT))

    async def snapshot(self, worker: str) -> WorkerSnapshot:
        serial = next(self._numbers)
        self.streams[worker].send(Inspect(serial))
        answer = await self.until(lambda: self._answers.get(serial))
        assert isinstance(answer, Inspected)
        return answer.snapshot

    async def metric(self, worker: str, name: str, *labels: str) -> float:
        """The sum of a metric's samples that bear `labels` (`key="value"`)."""
        serial = next(self._numbers)
        self.streams[worker].send(Scrape(serial))
        answer = await self.until(lambda: self._answers.get(serial))
        assert isinstance(answer, Scraped)
        samples = [line for line in answer.text.splitlines() if line.startswith(f"{name}{{")]
        return sum(float(line.rpartition(" ")[2]) for line in samples if all(label in line for label in labels))

    async def trace(self, worker: str) -> tuple[str, ...]:
        """The last steps of a worker's machine."""
        serial = next(self._numbers)
        self.streams[worker].send(Trace(serial))
        answer = await self.until(lambda: self._answers.get(serial))
        assert isinstance(answer, Traced)
        return answer.lines

    async def shows(self, worker: str, holds: Callable[[WorkerSnapshot], bool]) -> WorkerSnapshot:
        """Ask a worker for its snapshot until it is as awaited."""
        async with asyncio.timeout(LONG_S):
            while not holds(snapshot := await self.snapshot(worker)):  # noqa: ASYNC110 - workers announce no pages
                await asyncio.sleep(0.005)
            return snapshot

    async def close(self) -> None:
        for stream in self.streams.values():
            stream.close()
        await asyncio.gather(*self._readers, return_exceptions=True)


def is_empty(view: WorkerSnapshot) -> bool:
    """Every page is free or cached and no hand-off is left."""
    return view.pages["free"] + view.pages["cached"] == sum(view.pages.values()) and not view.rooms and not view.running


def _end_of(frame: WorkerFrame) -> str:
    match frame:
        case Tokens(_, _, finish):
            return finish
        case HandedOff():
            return "handed_off"
        case Failed(_, failure):
            return failure.code
        case _:
            return ""
