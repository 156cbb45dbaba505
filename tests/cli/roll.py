"""The roll that fake processes call: who came, and when they are gone, without a sleep."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

FAKE = Path(__file__).with_name("fake_process.py")


class Called:
    """One life of a fake process."""

    def __init__(self, said: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name: str = said["name"]
        self.pid: int = said["pid"]
        self.settings: dict[str, Any] = said["settings"]
        self.environ: dict[str, str] = said["environ"]
        self._reader = reader
        self._writer = writer

    async def up(self) -> None:
        assert await self._reader.readline() == b"up\n"

    async def became(self) -> Called:
        """What a spare says it is now."""
        said = json.loads(await self._reader.readline())
        return Called(said, self._reader, self._writer)

    async def hurried(self) -> None:
        assert await self._reader.readline() == b"hurried\n"

    def go(self) -> None:
        """End it the way its behaviour says."""
        self._writer.write(b".")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    async def gone(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self._reader.readline():
                pass


class Roll:
    """Lives in the order in which they called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: asyncio.Queue[Called] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []

    async def called(self, count: int = 1) -> dict[str, Called]:
        """The next `count` lives, by name."""
        lives = [await self.calls.get() for _ in range(count)]
        return {life.name: life for life in lives}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        said = json.loads(await reader.readline())
        self.calls.put_nowait(Called(said, reader, writer))

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def open_roll(path: Path) -> AsyncIterator[Roll]:
    roll = Roll(path)
    server = await asyncio.start_unix_server(roll.serve, path)
    try:
        yield roll
    finally:
        server.close()
        await roll.close()
