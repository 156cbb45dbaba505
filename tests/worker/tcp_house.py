"""Workers that pair over TCP, as those of several hosts do, in one process: a house, and a cable that can break."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from quiesce.control.address import TcpAddress, show_address
from quiesce.control.security import Security
from quiesce.control.tcp_listener import TcpListener, open_listener
from quiesce.kv.storage import Pool
from quiesce.lab.faults import FaultyTcpSender
from quiesce.transport.contract import Sender
from quiesce.worker.compose import Compose
from quiesce.worker.main import serve_connection
from quiesce.worker.reach import pages_tls
from quiesce.worker.settings import WorkerSettings
from tests.control.trial import files

from .house import House, Member, WriteFaults

INSECURE: dict[str, Any] = {"insecure": True}


class Cable:
    """Forwards connections to a port; `cut` breaks all of them, and `freeze` lets nothing through any more."""

    def __init__(self, port: int) -> None:
        self._far = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def lay(self) -> int:
        """The port of the near end."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._far)
        except OSError:
            writer.close()
            return
        self._writers.append(far_writer)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
        sink.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def lead_to(self, port: int) -> None:
        """Another port from now on; nothing is connected to the earlier one any more."""
        self._far = port
        self.cut()

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def remove(self) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class TcpHouse(House):
    """As House, but decode dials prefill over TCP, through a cable of its own; `secure` says whether by TLS."""

    def __init__(self, directory: Path, *, secure: bool = True) -> None:
        super().__init__(directory)
        self._secure = secure
        self._ports: dict[str, int] = {}
        self._listeners: list[TcpListener] = []
        self._earlier: list[Member[Any]] = []
        self.cables: dict[str, Cable] = {}

    def sender(self, pool: Pool, threads: int, told: WorkerSettings, writes: WriteFaults) -> Sender:
        return FaultyTcpSender(pool, threads, told.call_deadline_s, writes.faults, pages_tls(told))

    def address_of(self, name: str) -> str:
        return show_address(TcpAddress("127.0.0.1", self._ports[name]))

    async def listen(self, member: Member[Any]) -> int:
        """Let a worker be dialled by TCP; its port."""
        security: Security = member.worker.parts.security
        listener = await open_listener(
            TcpAddress("127.0.0.1", 0), lambda sock: serve_connection(member.worker, sock), security
        )
        assert isinstance(listener, TcpListener)
        self._listeners.append(listener)
        return listener.address.port

    async def _open(self, told: WorkerSettings, writes: WriteFaults, compose: Compose) -> Member[Any]:
        """One of a name that is here already is its next life, which the cable leads to; the earlier one lives on."""
        if told.name in self.members:
            self._earlier.append(self.members[told.name])
        member = await super()._open(told, writes, compose)
        if told.role == "prefill":
            port = await self.listen(member)
            if told.name in self.cables:
                self.cables[told.name].lead_to(port)
            else:
                self.cables[told.name] = Cable(port)
                self._ports[told.name] = await self.cables[told.name].lay()
        return member

    def _at(self, name: str) -> dict[str, Any]:
        trust = files(name) if self._secure else INSECURE
        life = f"{name}.{len(self._earlier)}" if name in self.members else name
        return {**super()._at(life), **trust, "transport": "tcp"}

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for cable in self.cables.values():
            await cable.remove()
        for member in self._earlier:  # first: the desk reads from them until they hang up
            await member.stop()
        await super().close()
        for listener in self._listeners:
            await listener.stop()
