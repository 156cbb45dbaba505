"""The wire between a story and the gate inside a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from quiesce.control.frames import decoder_of
from quiesce.control.stream import FrameStream, dial
from quiesce.errors import PeerUnusable
from quiesce.kv.storage import Pool
from quiesce.lab.gate import Gate, GateEvent, GateOrder, Landed, Obeyed, Waits
from quiesce.lab.gated_placement import GatedPlacement
from quiesce.lab.gated_workers import GatedDecode, GatedPrefill
from quiesce.lab.order_socket import OrderSocket
from quiesce.transport.contract import Sender
from quiesce.transport.shm import ShmSender
from quiesce.worker.compose import Compose
from quiesce.worker.intake import MakeIntake
from quiesce.worker.outlet import MakeOutlet
from quiesce.worker.parts import Parts
from quiesce.worker.settings import WorkerSettings

SUFFIX = ".gate"
WRITERS = 8
"""Transfer threads of a gated worker: each write that waits keeps one."""

WITHIN_S = 120.0


class GateSocket:
    """Serves orders for the gate of one worker."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._socket: OrderSocket[GateOrder] = OrderSocket(settings, SUFFIX, GateOrder, self._order)
        self.gate = Gate(self._socket.tell)
        self.obey: Callable[[GateOrder], None] = lambda order: None

    def _order(self, order: GateOrder) -> None:
        try:
            self.obey(order)
        except Exception as error:
            self._socket.tell(Obeyed(f"{type(error).__name__}: {error}"))
        else:
            self._socket.tell(Obeyed())


def gated() -> Compose:
    """Workers that wait at gates."""
    placement = GatedPlacement()

    def sender(pool: Pool, settings: WorkerSettings) -> Sender:
        return ShmSender(pool, WRITERS, settings.call_deadline_s, placement)

    def prefill(parts: Parts, make_outlet: MakeOutlet) -> GatedPrefill:
        served = GateSocket(parts.settings)
        worker = GatedPrefill(parts, make_outlet, served.gate, placement)
        served.obey = worker.obey
        return worker

    def decode(parts: Parts, make_intake: MakeIntake) -> GatedDecode:
        served = GateSocket(parts.settings)
        worker = GatedDecode(parts, make_intake, served.gate)
        served.obey = worker.obey
        return worker

    return Compose(sender=sender, prefill=prefill, decode=decode)


class GateControl:
    """A story's end of a `GateSocket`: what waits there, and orders."""

    def __init__(self, name: str, stream: FrameStream[GateEvent]) -> None:
        self.name = name
        self._stream = stream
        self._waiting: list[Waits] = []
        self._landed: set[int] = set()
        self._answers: asyncio.Queue[Obeyed] = asyncio.Queue()
        self._changed = asyncio.Condition()
        self._hearing = asyncio.create_task(self._hear(), name=f"gate of {name}")

    @classmethod
    async def open(cls, name: str, worker_socket: Path) -> GateControl:
        sock = await dial(worker_socket.with_suffix(SUFFIX))
        return cls(name, FrameStream(sock, decoder_of(GateEvent), "gate"))

    async def _hear(self) -> None:
        while (event := await self._stream.receive()) is not None:
            match event:
                case Waits():
                    self._waiting.append(event)
                case Landed(serial):
                    self._landed.add(serial)
                case Obeyed():
                    self._answers.put_nowait(event)
            async with self._changed:
                self._changed.notify_all()
        self._answers.put_nowait(Obeyed("the worker hung up"))

    async def order(self, order: GateOrder) -> None:
        """Give an order and wait until it is carried out. Raises PeerUnusable when it is not."""
        self._stream.send(order)
        answer = await self._answers.get()
        if answer.reason:
            raise PeerUnusable(f"{self.name} did not obey {order}: {answer.reason}.")

    async def waits(
        self, what: str, *, kind: str = "", request: str = "", attempt: int = 0, take: bool = True
    ) -> Waits:
        """The first thing of this description that waits. Raises PeerUnusable when none comes in time."""

        def fits(each: Waits) -> bool:
            wanted = (each.what, kind and each.kind, request and each.request, attempt and each.attempt)
            return wanted == (what, kind, request, attempt)

        async with self._changed:
            await self._until(lambda: any(map(fits, self._waiting)), f"no {kind or what} of {request or attempt} came")
            found = next(filter(fits, self._waiting))
        if take:
            self._waiting.remove(found)
        return found

    async def landed(self, serial: int) -> None:
        async with self._changed:
            await self._until(lambda: serial in self._landed, "a write that was let land did not")

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._changed.wait_for(holds)
        except TimeoutError:
            seen = ", ".join(f"{each.what} {each.kind}" for each in self._waiting) or "nothing"
            raise PeerUnusable(f"{self.name}: {otherwise}; what waits: {seen}.") from None

    def forget(self) -> None:
        """Nothing waits any more: the gate was opened."""
        self._waiting.clear()

    def close(self) -> None:
        self._hearing.cancel()
        self._stream.close()
