"""Children's stderr passes through their supervisor: lines do not mix with its status line, errors are said once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK_BYTES = 1 << 16


class Relay:
    """Reads a pipe on the running loop and hands on its lines. `ended` is set at its end of file."""

    def __init__(self, fd: int, hear: Callable[[str], None]) -> None:
        os.set_blocking(fd, False)
        self.ended = asyncio.Event()
        self._fd = fd
        self._hear = hear
        self._rest = b""
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> None:
        """Hand on what came so far, and read no more. Idempotent."""
        if self.ended.is_set():
            return
        self.ended.set()
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        if self._rest:
            self._say(self._rest)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._say(line)
        if len(self._rest) > _CHUNK_BYTES:
            self._say(self._rest)
            self._rest = b""
        if not data:
            self.close()

    def _say(self, line: bytes) -> None:
        self._hear(line.decode(errors="replace").rstrip("\r"))


class Once:
    """Until `enough`, hands on each error line (`quiesce: ...`) only once, whichever child says it first."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] | None = set()

    def hear(self, line: str) -> None:
        if self._said is not None and line.startswith("quiesce: "):
            if line in self._said:
                return
            self._said.add(line)
        self._say(line)

    def enough(self) -> None:
        """From now on every line is news."""
        self._said = None
