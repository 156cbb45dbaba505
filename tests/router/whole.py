"""A whole server in this process: the real router before real workers with a tiny model, which stop where a test says.

Clients are bare sockets, so that they can leave in every way there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from quiesce.protocol.dispatch import Cancel, RoomView
from quiesce.router.main import Server, router
from quiesce.router.settings import RouterSettings
from quiesce.worker.links import Link
from tests.worker.gate import LONG_S, Gate
from tests.worker.house import House, Member

from .asking import COMPLETION
from .conftest import TINY

GREEDY = {"model": "tiny", "temperature": 0, "ignore_eos": True}
STAGES = ("queued", "prefill", "transfer", "decode")


class Caller:
    """A client's socket. It reads nothing unless told to."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), LONG_S)
        self.sock.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def ask(self, **fields: Any) -> None:
        body = json.dumps(GREEDY | fields).encode()
        head = f"POST {COMPLETION} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
        await self._loop.sock_sendall(self.sock, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def until(self, part: bytes) -> bytes:
        """Read until `part` came; what came, or all there is when the connection ended."""
        received = b""
        async with asyncio.timeout(LONG_S):
            while part not in received:
                try:
                    data = await self._loop.sock_recv(self.sock, 1 << 16)
                except ConnectionError:
                    return received
                if not data:
                    return received
                received += data
        return received

    async def document(self) -> tuple[int, dict[str, Any]]:
        """The status and the one document of an answer that is no stream."""
        head, _, body = (await self.until(b"\r\n0\r\n\r\n")).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)


LEAVES: dict[str, Callable[[Caller], None]] = {
    "close": Caller.close,
    "reset": Caller.reset,
    "half-close": Caller.half_close,
}


class Whole:
    """`prefill` and `decode` are the pair of `house`; `stop` holds the next request at a stage until `go_on`."""

    def __init__(self, house: House, server: Server, prefill: Member[Any], decode: Member[Any]) -> None:
        self.house, self.server, self.prefill, self.decode = house, server, prefill, decode
        self._gates: list[Gate] = []
        self._callers: list[Caller] = []

    def call(self) -> Caller:
        caller = Caller(self.server.port)
        self._callers.append(caller)
        return caller

    async def stopped_at(self, stage: str, **fields: Any) -> Caller:
        """A client whose request has come to this stage and goes no further."""
        if stage == "queued":
            first = await self.stopped_at("prefill", prompt="the first in the queue", max_tokens=2)
            caller = self.call()
            await caller.ask(prompt="a prompt of some length", max_tokens=64, **fields)
            for worker in ("prefill-0", "decode-0"):
                await self.house.desk.shows(worker, lambda view: len(view.rooms) == 2)
            self.first = first
            return caller
        reached = self._hold(stage)
        caller = self.call()
        await caller.ask(**{"prompt": "a prompt of some length", "max_tokens": 64} | fields)
        await reached()
        return caller

    def _hold(self, stage: str) -> Callable[[], Any]:
        if stage == "transfer":
            self.prefill.writes.hold()
            return self.prefill.writes.held
        member, name = {"prefill": (self.prefill, "prefill_chunk"), "decode": (self.decode, "decode_step")}[stage]
        engine = member.worker.parts.engine
        gate = Gate(getattr(engine, name))
        setattr(engine, name, gate)
        self._gates.append(gate)
        return gate.reached

    def go_on(self) -> None:
        for gate in self._gates:
            gate.open()
        self.prefill.writes.let_go()

    async def rooms(self, worker: str) -> list[RoomView]:
        return list((await self.house.desk.snapshot(worker)).rooms)

    async def answered(self, **fields: Any) -> dict[str, Any]:
        """A whole answer to one more request."""
        caller = self.call()
        await caller.ask(**{"prompt": "another", "max_tokens": 8} | fields)
        status, document = await caller.document()
        assert status == 200, document
        return document

    def told_decode(self) -> list[str]:
        """The codes of the cancellations that decode hears from now on."""
        told, worker = list[str](), self.decode.worker
        inner = worker.cancel

        def cancel(frame: Cancel, link: Link) -> None:
            told.append(frame.failure.code)
            inner(frame, link)

        worker.cancel = cancel
        return told

    async def metric(self, worker: str, name: str, *labels: str) -> float:
        return await self.house.desk.metric(worker, name, *labels)

    async def is_whole(self) -> None:
        """Everything has come back, on proof, and an answer is what it was."""
        await self.house.empty()
        for name, member in self.house.members.items():
            assert not member.worker._owners
            assert not member.worker.broken.done()
            assert await self.metric(name, "quiesce_unsafe_releases_total") == 0
            assert await self.metric(name, "quiesce_tag_mismatches_total") == 0
        fleet = self.server.service.fleet
        async with asyncio.timeout(LONG_S):
            while fleet._tries:  # noqa: ASYNC110 - perhaps the router's own test generation
                await asyncio.sleep(0.005)
        assert [link.halves for link in fleet.links] == [0] * len(fleet.links)

    def close(self) -> None:
        self.go_on()
        for caller in self._callers:
            caller.close()


@contextlib.asynccontextmanager
async def whole(
    directory: Path, *, prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Whole]:
    """Started and ready; stopped at the end."""
    house = House(directory)
    pair = await house.prefill(**(prefill or {})), await house.decode(**(decode or {}))
    workers = tuple(f"unix:{member.path}" for member in pair)
    told = msgspec.structs.replace(RouterSettings(port=0, worker=workers, model="tiny", grace_s=0.0), **settings)
    async with router(told, TINY) as server:
        serving = asyncio.ensure_future(server.serve())
        service = server.service
        async with asyncio.timeout(LONG_S):
            while service.readiness.why_not():
                await service.fleet.wait_for_change()
        await house.empty()
        opened = Whole(house, server, *pair)
        try:
            yield opened
        finally:
            opened.close()
            server.stop()
            await serving
            await house.close()
