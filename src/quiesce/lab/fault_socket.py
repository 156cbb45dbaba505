"""The wire between a test and the faults inside a worker: a Unix socket beside the worker's own."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from quiesce.control.frames import decoder_of
from quiesce.control.stream import FrameStream, dial
from quiesce.errors import PeerUnusable
from quiesce.lab.faults import Armed, FaultEvent, FaultOrder, Faults
from quiesce.lab.order_socket import OrderSocket
from quiesce.worker.settings import WorkerSettings

E = TypeVar("E", bound=msgspec.Struct)


SUFFIX = ".faults"


def fault_path(worker_socket: Path) -> Path:
    """Where the faults of the worker at `worker_socket` take orders."""
    return worker_socket.with_suffix(SUFFIX)


class FaultSocket:
    """Serves orders for one worker on its event loop. Made while the loop runs."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._socket: OrderSocket[FaultOrder] = OrderSocket(settings, SUFFIX, FaultOrder, self._obey)
        self.faults = Faults(self._socket.tell_soon)

    def _obey(self, order: FaultOrder) -> None:
        self.faults.order(order)


class FaultControl:
    """A test's end of a `FaultSocket`."""

    def __init__(self, stream: FrameStream[FaultEvent]) -> None:
        self._stream = stream

    @classmethod
    async def open(cls, worker_socket: Path) -> FaultControl:
        sock = await dial(fault_path(worker_socket))
        return cls(FrameStream(sock, decoder_of(FaultEvent), "faults"))

    async def order(self, order: FaultOrder) -> None:
        """Give an order and wait until it is in force."""
        self._stream.send(order)
        await self.wait_for(Armed)

    def tell(self, order: FaultOrder) -> None:
        """Give an order to a worker that may be unable to answer now."""
        self._stream.send(order)

    async def wait_for(self, kind: type[E]) -> E:
        """The next event of `kind`."""
        while (event := await self._stream.receive()) is not None:
            if isinstance(event, kind):
                return event
        raise PeerUnusable("the worker with the faults hung up.")

    def close(self) -> None:
        self._stream.close()
