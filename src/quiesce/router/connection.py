"""One client's connection: uvicorn's protocol, which may not be kept waiting for ever and may not be one too many."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Literal

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from quiesce.api.responses import error_body

_LINGER_S = 5.0
"""How long a client may go on sending a body that was answered already, so that it reads the answer."""

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

    _awaited: Awaited = ""
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.most_connections:
            self._make_room()
        self._review()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._review()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._review()

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
        if self.transport.is_closing():
            return "flush"
        if self.cycle is not None and not self.cycle.response_complete:
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


def connections_within(chosen: Limits) -> type[Connection]:
    """The protocol class that uvicorn makes one of for each connection."""

    class Within(Connection):
        limits = chosen
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
