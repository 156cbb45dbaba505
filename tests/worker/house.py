"""Prefill and decode workers in one process, over real Unix sockets and real shared memory, with faults in reach."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiesce.control.stream import listen
from quiesce.kv.storage import Pool
from quiesce.lab.faults import (
    FaultEvent,
    FaultOrder,
    Faults,
    FaultyPlacement,
    FaultyTcpPuller,
    Held,
    Hold,
    Landed,
    LetGo,
    Step,
)
from quiesce.lab.read_faults import FaultyTcpLender
from quiesce.transport.contract import Sender
from quiesce.transport.placement import Placement
from quiesce.transport.shm import ShmSender
from quiesce.worker.aggregated import AggregatedWorker
from quiesce.worker.compose import Compose
from quiesce.worker.decode import DecodeWorker
from quiesce.worker.landing_space import landing_space
from quiesce.worker.main import Worker, assemble, make_worker, serve_connection
from quiesce.worker.prefill import PrefillWorker
from quiesce.worker.reach import pages_tls
from quiesce.worker.settings import WorkerSettings

from .asking import BOTH, Ask, Desk, is_empty
from .gate import LONG_S
from .requests import settings
from .rig import prompt_ids

W = TypeVar("W", bound=Worker)


class Member(Generic[W]):
    """A worker that runs and listens in this process."""

    def __init__(self, worker: W, path: Path, writes: WriteFaults) -> None:
        self.worker = worker
        self.path = path
        self.writes = writes
        self.name = worker.settings.name
        self.running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._listener = await listen(self.path, lambda sock: serve_connection(self.worker, sock))
        self.running = asyncio.create_task(self.worker.run())

    async def stop(self) -> None:
        self.writes.let_go()
        await self._listener.stop()
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        self.worker.close()
        await asyncio.to_thread(self.worker.join)

    async def quiet(self) -> bool:
        return await self.worker.quiet_within(LONG_S)


class WriteFaults:
    """Orders for the writes of one prefill worker (or the reads of one that lends or reads), and their events."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[FaultEvent] = asyncio.Queue()
        self.faults = Faults(self._happened)
        self.placement: Placement = FaultyPlacement(self.faults)

    def _happened(self, event: FaultEvent) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def order(self, order: FaultOrder) -> None:
        self.faults.order(order)

    def hold(self, step: Step = Step.BYTES, count: int = 1) -> None:
        self.order(Hold(step, count))

    def let_go(self, *, stamp: bool = True) -> None:
        self.order(LetGo(stamp))

    async def held(self) -> None:
        await self._next(Held)

    async def landed(self) -> None:
        await self._next(Landed)

    async def _next(self, kind: type[Held | Landed]) -> None:
        async with asyncio.timeout(LONG_S):
            while not isinstance(await self._events.get(), kind):
                pass


class House:
    """Workers, and a desk that is attached to all of them. Close it at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.members: dict[str, Member[Any]] = {}
        self.desk = Desk()

    async def prefill(self, name: str = "prefill-0", **changes: Any) -> Member[PrefillWorker]:
        writes = WriteFaults()
        writes.placement = changes.pop("placement", writes.placement)
        threads: int = changes.pop("transfer_threads", 2)
        lender: type[FaultyTcpLender] = changes.pop("lender", FaultyTcpLender)

        compose = Compose(
            sender=lambda pool, told: self.sender(pool, threads, told, writes),
            lender=lambda pool, told: lender(pool, told.page_host, told.data_port, writes.faults, pages_tls(told)),
        )
        return await self._open(settings("prefill", name, **self._at(name), **changes), writes, compose)

    def sender(self, pool: Pool, threads: int, told: WorkerSettings, writes: WriteFaults) -> Sender:
        return ShmSender(pool, threads, told.call_deadline_s, writes.placement)

    async def decode(
        self, name: str = "decode-0", peers: tuple[str, ...] = ("prefill-0",), **changes: Any
    ) -> Member[DecodeWorker]:
        puller: type[FaultyTcpPuller] = changes.pop("puller", FaultyTcpPuller)
        addresses = tuple(f"{peer}={self.address_of(peer)}" for peer in peers)
        landing = changes.pop("landing_space", landing_space)
        told = settings("decode", name, **{**self._at(name), "peer": addresses, **changes})
        reads = WriteFaults()
        compose = Compose(
            landing=landing,
            puller=lambda pool, told: puller(pool, 2, told.call_deadline_s, reads.faults, pages_tls(told)),
        )
        member: Member[DecodeWorker] = await self._open(told, reads, compose)
        await self.desk.paired(name, *(peer for peer in peers if peer in self.members))
        return member

    async def aggregated(self, **changes: Any) -> Member[AggregatedWorker]:
        told = settings("aggregated", "aggregated-0", **self._at("aggregated-0"), **changes)
        return await self._open(told, WriteFaults(), Compose())

    def address_of(self, name: str) -> str:
        """Where decode workers find a prefill worker."""
        return self._at(name)["listen"]

    def _at(self, name: str) -> dict[str, str]:
        return {"listen": f"unix:{self._directory / name}.sock"}

    async def _open(self, told: WorkerSettings, writes: WriteFaults, compose: Compose) -> Member[Any]:
        path = Path(told.listen.removeprefix("unix:"))
        member: Member[Any] = Member(make_worker(assemble(told, compose), compose), path, writes)
        self.members[member.name] = member
        await member.start()
        await self.desk.attach(member.name, path)
        return member

    async def held(self, member: Member[Any], ids: NDArray[np.int32], max_tokens: int = 6) -> Ask:
        """A request for which `member` is about to write, or to read or lend, and waits before the first byte."""
        member.writes.hold()
        ask = self.desk.ask(ids, *BOTH, max_tokens=max_tokens)
        await member.writes.held()
        return ask

    async def serves(self) -> None:
        """Both halves work, and give everything back."""
        await self.desk.ask(prompt_ids(30), *BOTH, max_tokens=6).answers(6)
        await self.empty()

    async def empty(self) -> None:
        """Wait until every worker gave everything back."""
        for name in self.members:
            await self.desk.shows(name, is_empty)

    async def close(self) -> None:
        await self.desk.close()
        for member in reversed(self.members.values()):
            await member.stop()
