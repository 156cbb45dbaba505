"""A trial CA of this run, and what processes of several hosts show each other."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

from quiesce.control.address import TcpAddress
from quiesce.control.connection import Connection
from quiesce.control.dialing import connect
from quiesce.control.security import Security, load_security
from quiesce.control.tcp_listener import TcpListener, open_listener
from quiesce.trust.certificates import Leaf, make_certificates

NAMED = ("prefill-0.quiesce.test", "decode-0.quiesce.test")
HERE = (*NAMED, "localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3", "10.77.0.1", "10.77.0.2")
LEAVES = (
    Leaf("router", "router", HERE),
    Leaf("prefill-0", "prefill/prefill-0", HERE),
    Leaf("prefill-1", "prefill/prefill-1", HERE),
    Leaf("decode-0", "decode/decode-0", HERE),
    Leaf("decode-1", "decode/decode-1", HERE),
    Leaf("elsewhere", "prefill/prefill-0", ("prefill.example",)),
)


@cache
def _directory(which: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"q-{which}-")


@cache
def directory(which: str = "ours") -> Path:
    """A directory with a CA of its own and a certificate for everybody; gone when the run ends."""
    path = Path(_directory(which).name)
    make_certificates(path, LEAVES, days=1)
    return path


def files(name: str, which: str = "ours") -> dict[str, str]:
    """Settings of the process that shows the certificate of `name`."""
    path = directory(which)
    return {"tls_cert": f"{path}/{name}.pem", "tls_key": f"{path}/{name}.key", "tls_ca": f"{path}/ca.pem"}


def shows(name: str, which: str = "ours") -> Security:
    told = files(name, which)
    return load_security(told["tls_cert"], told["tls_key"], told["tls_ca"])


class Door:
    """A TLS port of `owner`, and the connections that came through it."""

    def __init__(self, owner: Security) -> None:
        self._owner = owner
        self.came: asyncio.Queue[Connection] = asyncio.Queue()
        self._leave = asyncio.Event()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[TcpListener]:
        listener = await open_listener(TcpAddress("127.0.0.1", 0), self._serve, self._owner)
        assert isinstance(listener, TcpListener)
        try:
            yield listener
        finally:
            self._leave.set()
            await listener.stop()

    async def _serve(self, connection: Connection) -> None:
        self.came.put_nowait(connection)
        await self._leave.wait()


@contextlib.asynccontextmanager
async def joined(owner: Security, guest: Security) -> AsyncIterator[tuple[Connection, Connection]]:
    """A connection: the guest's end, and the owner's."""
    door = Door(owner)
    async with door.opened() as listener:
        guests = await connect(listener.address, security=guest)
        try:
            owners = await asyncio.wait_for(door.came.get(), 20)
            yield guests, owners
            owners.close()
        finally:
            guests.close()
