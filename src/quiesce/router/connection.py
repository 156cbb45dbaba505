"""One client's connection: uvicorn's protocol, which may not be kept waiting for ever and may not be one too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, Literal

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from quiesce.api.responses import error_body

_LINGER_S = 5.0
"""How long a client may go on sending a body that was answered already, so that it reads the answer."""

RECENT_S = 1.0
"""When the port is closed, who came or was answered within this may ask once more."""

_UNREAD_S = 60.0
"""How long a client may leave unread what waits for it."""

Awaited = Literal["", "idle", "head", "rest", "flush"]
"""What a client has to do next: begin a request, finish its head, finish a body that nobody reads, read its answer.

Nothing while its request is with us: bodies have their deadline in `body`, answers take as long as they take.
"""


class Limits(msgspec.Struct, frozen=True):
    """`head_s` is from the first byte (or the connection) to the end of a head, `idle_s` between two requests."""

    most_connections: int
    head_s: float
    idle_s: float


class Connection(H11Protocol):
    """Closes what is awaited for too long, or for longest when there is no room for another connection.

    A client that ends its side has left: its request is cancelled. (HTTP lets a client shut down its half and wait. To
    us that looks the same as leaving, until something is written.)
    """

    limits = Limits(1, 0.0, 0.0)
    waiting: ClassVar[dict[Connection, None]] = {}
    """Those that wait for a request, longest first. Both are set by `connections_within`."""

    is_closed: Callable[[], bool] = staticmethod(lambda: False)
    """Whether nobody can connect any more."""

    _awaited: Awaited = ""
    _left = False
    _last_s = 0.0
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._last_s = self.loop.time()
        if self.is_closed():
            self.shutdown()
        if len(self.connections) > self.limits.most_connections:
            self._make_room()
        self._review()

    def data_received(self, data: bytes) -> None:
        if self._left:
            return
        super().data_received(data)
        self._review()

    def handle_events(self) -> None:
        super().handle_events()
        if self._is_busy():
            self.cycle.transport = _Lingering(self.transport, self.leave)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._last_s = self.loop.time()
        if self.is_closed():
            self._leave_soon(0.0)
        self._review()

    def shutdown(self) -> None:
        """What uvicorn says once the port is closed. A request that has arrived, read or not, still has its answer,
        unless one before it said that it is the last of its connection (`last_answers`)."""
        self._leave_soon(0.0 if self._awaited == "rest" else RECENT_S)

    def _leave_soon(self, again_s: float) -> None:
        """Not before the loop has read what there is."""
        self.loop.call_at(self._last_s + again_s, self._leave_if_idle)

    def leave(self) -> None:
        """End our side after what is still to be sent, and read on, heeding nothing, until the client ends its own.

        To close at once would throw away bytes that came and were not read. Then the kernel resets the connection, and
        the client may never see the answer that it has been sent.
        """
        if self._left or self.transport.is_closing():
            return
        self._left = True
        self.transport.resume_reading()
        self.transport.set_write_buffer_limits(0)  # `resume_writing` is told when nothing is left to send
        self._end_our_side()

    def _end_our_side(self) -> None:
        """asyncio would do it behind its last write, and log a fault where that finds that the client has gone."""
        if self.transport.is_closing():
            return
        if not self.transport.get_write_buffer_size():
            try:
                self.transport.write_eof()
            except OSError:  # the client has reset it
                self.transport.abort()
        self._review()

    def _leave_if_idle(self) -> None:
        if not self._is_busy():
            self.leave()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._await("")
        self._stop_unread_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(_UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()
        if self._left:
            self.loop.call_soon(self._end_our_side)

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Requests under way are never cut for a newcomer."""
        for longest in self.waiting:
            longest.transport.close()
            longest._review()
            return
        self.transport.write(_TOO_MANY)
        self.transport.close()

    def _review(self) -> None:
        """One timer for each thing awaited: bytes that trickle in do not wind it up again."""
        awaited = self._owed()
        if awaited != self._awaited:
            self._await(awaited)

    def _owed(self) -> Awaited:
        if self.transport.is_closing() or (self._left and self.transport.get_write_buffer_size()):
            return "flush"
        if self._left:
            return "rest"
        if self._is_busy():
            return ""
        if self.conn.their_state is h11.SEND_BODY:
            return "rest"
        return "head" if self.cycle is None or self.conn.trailing_data[0] else "idle"

    def _await(self, awaited: Awaited) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._awaited = awaited
        self.waiting.pop(self, None)
        if awaited in ("idle", "head"):
            self.waiting[self] = None
        self._timer = self.loop.call_later(self._seconds(awaited), self._give_up) if awaited else None

    def _seconds(self, awaited: Awaited) -> float:
        limits = self.limits
        return {"idle": limits.idle_s, "head": limits.head_s, "rest": _LINGER_S}.get(awaited, _UNREAD_S)

    def _give_up(self) -> None:
        if self._awaited in ("rest", "flush"):
            self.transport.abort()
        else:
            self.transport.close()
            self._review()

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


class _Lingering(asyncio.Transport):
    """What a request's answer is written to. uvicorn closes it when no other request may follow."""

    def __init__(self, transport: asyncio.Transport, leave: Callable[[], None]) -> None:
        super().__init__()
        self._transport, self._leave = transport, leave

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._transport.is_closing():  # asyncio would log each write until the protocol is told
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._leave()


def connections_within(chosen: Limits, closed: Callable[[], bool]) -> type[Connection]:
    """The protocol class that uvicorn makes one of for each connection."""

    class Within(Connection):
        limits = chosen
        is_closed = staticmethod(closed)
        waiting: ClassVar[dict[Connection, None]] = {}

    return Within


def _refusal() -> bytes:
    error = error_body("Too many connections are open.", code="too_many_connections", status=503)
    body = msgspec.json.encode(error)
    head = (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


_TOO_MANY = _refusal()
