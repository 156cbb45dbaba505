"""A look into a worker: attach to its socket, read what it says of itself, ask it questions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from quiesce.control.dialing import dial
from quiesce.control.dispatch_codec import decode_worker_frame
from quiesce.control.stream import FrameStream
from quiesce.errors import PeerUnusable
from quiesce.protocol.dispatch import (
    Attach,
    Inspect,
    Inspected,
    Load,
    Peers,
    Scrape,
    Scraped,
    Trace,
    Traced,
    Welcome,
    WorkerFrame,
    WorkerSnapshot,
)

F = TypeVar("F", bound=msgspec.Struct)
A = TypeVar("A", Inspected, Scraped, Traced)

_ANSWER_S = 10.0


def _tell_nobody(pid: int) -> None:
    """Who asks may want to know the process before it has answered."""


class Attachment:
    """A connection to one worker. Who asks waits `answer_s` for each answer (None: for ever); raises `PeerUnusable`.

    `load` and `peers` are what the worker told last, None until it did.
    """

    def __init__(self, stream: FrameStream[WorkerFrame], welcome: Welcome, answer_s: float | None = _ANSWER_S) -> None:
        self.welcome = welcome
        self.load: Load | None = None
        self.peers: tuple[str, ...] | None = None
        self._stream = stream
        self._serial = 0
        self._answer_s = answer_s

    @classmethod
    async def open(
        cls, socket: Path, connected: Callable[[int], None] = _tell_nobody, answer_s: float | None = _ANSWER_S
    ) -> Attachment:
        """Connect, tell `connected` the worker's process, and read its Welcome. Each answer may take `answer_s`.

        Raises `PeerUnusable` when nobody listens or answers there.
        """
        stream: FrameStream[WorkerFrame] = FrameStream(await dial(socket), decode_worker_frame, socket.stem)
        connected(stream.peer_pid)
        stream.send(Attach(name=f"look-{os.getpid()}"))
        try:
            return cls(stream, await _expect(stream, Welcome, answer_s), answer_s)
        except BaseException:
            stream.close()
            raise

    async def snapshot(self) -> WorkerSnapshot:
        """The worker's pools, rooms and page ranges now."""
        return (await self._ask(Inspect, Inspected)).snapshot

    async def metrics(self) -> str:
        """The worker's metrics as Prometheus text."""
        return (await self._ask(Scrape, Scraped)).text

    async def trace(self) -> tuple[str, ...]:
        """The last steps of the worker's machine, oldest first; without anything of a user."""
        return (await self._ask(Trace, Traced)).lines

    @property
    def pid(self) -> int:
        """The worker's process: who listened there when this connection was made."""
        return self._stream.peer_pid

    async def hung_up(self) -> None:
        """Wait, without limit, until the worker closes the connection."""
        while await self._stream.receive() is not None:
            pass

    async def _ask(self, question: type[Inspect | Scrape | Trace], kind: type[A]) -> A:
        self._serial += 1
        self._stream.send(question(serial=self._serial))
        while True:
            answer = await _expect(self._stream, kind, self._answer_s, self._note)
            if answer.serial == self._serial:
                return answer

    def _note(self, news: WorkerFrame) -> None:
        match news:
            case Load():
                self.load = news
            case Peers(prefills):
                self.peers = prefills

    def close(self) -> None:
        self._stream.close()


def _drop(news: WorkerFrame) -> None:
    """Load and peers are for routers."""


async def _expect(
    stream: FrameStream[WorkerFrame],
    kind: type[F],
    answer_s: float | None,
    other: Callable[[WorkerFrame], None] = _drop,
) -> F:
    """The next frame of `kind`; what comes before it goes to `other`."""
    try:
        async with asyncio.timeout(answer_s):
            while (frame := await stream.receive()) is not None:
                if isinstance(frame, kind):
                    return frame
                other(frame)
    except TimeoutError:
        raise PeerUnusable(f"{stream.name} does not answer.", remedy="Is it stopped or overloaded?") from None
    raise PeerUnusable(f"{stream.name} hung up.", remedy="Its own log says why.")
