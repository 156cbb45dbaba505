"""The wire between a test and what the laboratory put into a worker: a Unix socket beside the worker's own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from quiesce.control.frames import decoder_of
from quiesce.control.stream import FrameStream, listen
from quiesce.worker.settings import WorkerSettings

O = TypeVar("O")  # noqa: E741 - the letter of the type, never a variable


class OrderSocket(Generic[O]):
    """Takes orders for one worker on its event loop, and tells everybody who listens. Made while the loop runs."""

    def __init__(self, settings: WorkerSettings, suffix: str, orders: Any, obey: Callable[[O], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams: list[FrameStream[O]] = []
        self._decode: Callable[[bytes], O] = decoder_of(orders)
        self._suffix = suffix
        self._obey = obey
        path = Path(settings.listen.removeprefix("unix:")).with_suffix(suffix)  # the laboratory is one host
        self._listening = self._loop.create_task(listen(path, self._serve))

    def tell_soon(self, event: msgspec.Struct) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self.tell, event)

    def tell(self, event: msgspec.Struct) -> None:
        for stream in self._streams:
            if not stream.closed:
                stream.send(event)

    async def _serve(self, sock: socket.socket) -> None:
        stream: FrameStream[O] = FrameStream(sock, self._decode, self._suffix)
        self._streams.append(stream)
        try:
            while (order := await stream.receive()) is not None:
                self._obey(order)
        finally:
            self._streams.remove(stream)
            stream.close()
