"""Looking at a worker again and again, without ever waiting long for one that does not answer."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from quiesce.cli.attachment import Attachment
from quiesce.errors import PeerUnusable
from quiesce.protocol.dispatch import WorkerSnapshot

ANSWER_S = 2.0
"""For how long a look waits for a worker that has answered so far."""


class Look:
    """One worker's attachment, over its incarnations.

    A question that is not answered in time stays asked: the next look takes its answer if it has come meanwhile, and
    does not wait for it again. So a worker that stands still delays nobody, and is seen at once when it goes on.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._attachment: Attachment | None = None
        self._asking: asyncio.Task[WorkerSnapshot] | None = None
        self._pid = 0
        self._silent_since_s: float | None = None

    async def take(self) -> WorkerSnapshot | PeerUnusable:
        """The worker's snapshot, or why there is none."""
        asked_s = time.time()
        asking = self._asking = self._asking or asyncio.create_task(self._ask())
        await asyncio.wait({asking}, timeout=ANSWER_S if self._silent_since_s is None else 0)
        if not asking.done():
            self._silent_since_s = self._silent_since_s or asked_s
            return silence(self._socket.stem, self._silent_since_s, self._pid)
        self._asking = None
        return self._answered(asking)

    def close(self) -> None:
        if self._asking:
            self._asking.cancel()
        self._hang_up()

    async def _ask(self) -> WorkerSnapshot:
        self._attachment = self._attachment or await Attachment.open(self._socket, self._connected, None)
        return await self._attachment.snapshot()

    def _connected(self, pid: int) -> None:
        self._pid = pid

    def _answered(self, asking: asyncio.Task[WorkerSnapshot]) -> WorkerSnapshot | PeerUnusable:
        try:
            return asking.result()
        except PeerUnusable as problem:
            self._hang_up()
            return problem
        finally:
            self._silent_since_s = None

    def _hang_up(self) -> None:
        if self._attachment:
            self._attachment.close()
        self._attachment = None


def silence(name: str, since_s: float, pid: int) -> PeerUnusable:
    """In words: who does not answer, since when, and what the kernel says of its process (0: unknown)."""
    when = time.strftime("%H:%M:%S", time.localtime(since_s))
    message = f"{name} has not answered since it was asked at {when}, {time.time() - since_s:.0f} s ago."
    if pid and is_stopped(pid):
        return PeerUnusable(
            f"{message} Its process {pid} is stopped (SIGSTOP).", remedy=f"`kill -CONT {pid}` lets it go on."
        )
    return PeerUnusable(message, remedy="Is it overloaded? Its own log may say more.")


def is_stopped(pid: int) -> bool:
    """Whether the kernel has stopped that process, by a signal or for a debugger."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[:1] in (["T"], ["t"])
