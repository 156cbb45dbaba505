"""A relay in front of a data port: it records what passes, and stops at a byte that is told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

PIECE_BYTES = 1 << 16


class Relay:
    """`recorded` is what was sent to the port so far; beyond `most_bytes` of it nothing passes until `let_go`."""

    def __init__(self, port: int, most_bytes: int = 1 << 62) -> None:
        self.recorded = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._far = port
        self._most_bytes = most_bytes
        self._flows = threading.Condition()
        self._socks: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.connections = 0

    def stop_after(self, more_bytes: int) -> None:
        with self._flows:
            self._most_bytes = len(self.recorded) + more_bytes

    def passed(self) -> None:
        """Wait until it has stopped at `most_bytes`."""
        with self._flows:
            assert self._flows.wait_for(lambda: len(self.recorded) >= self._most_bytes, 30)

    def let_go(self) -> None:
        with self._flows:
            self._most_bytes = 1 << 62
            self._flows.notify_all()

    def close(self) -> None:
        self.let_go()
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in self._socks:
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._far))
                self.connections += 1
                self._socks += [near, far]
                pumps = [threading.Thread(target=self._forward, args=(near, far))]
                pumps.append(threading.Thread(target=_pump, args=(far, near)))
                self._threads += pumps
                for pump in pumps:
                    pump.start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(PIECE_BYTES):
                while data:
                    with self._flows:
                        self._flows.wait_for(lambda: len(self.recorded) < self._most_bytes)
                        piece = data[: self._most_bytes - len(self.recorded)]
                        self.recorded += piece  # before its effects can be seen
                        far.sendall(piece)
                        self._flows.notify_all()
                    data = data[len(piece) :]
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_WR)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE_BYTES):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def relay(port: int) -> Iterator[Relay]:
    made = Relay(port)
    try:
        yield made
    finally:
        made.close()
