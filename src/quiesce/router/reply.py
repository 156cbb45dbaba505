"""What goes back to the client: one JSON document, or a stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from starlette.types import Send

from quiesce.api.responses import ErrorBody, error_body
from quiesce.router.failures import ClientGone

_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_DONE = b"data: [DONE]\n\n"

_encoder = msgspec.json.Encoder()


class Event(msgspec.Struct, frozen=True):
    """One event of a stream; `name` is its type, for dialects that tell it."""

    data: object
    name: str = ""


class Reply:
    """The answer to one HTTP request. Once a stream has begun, an error is its last event, as `failing` writes it.

    `headers` go out with it, whatever it is. Its end is kept until `finish`: what a client does once it has its whole
    answer finds everything counted and given back.
    """

    def __init__(self, send: Send) -> None:
        self.headers: dict[str, str] = {}
        self.failing: Callable[[ErrorBody], Event] = Event
        self._send = send
        self._streaming = False
        self._turns = asyncio.Lock()
        self._end: bytes | None = None

    async def json(self, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        await self._start(status, {"content-type": "application/json"} | dict(headers or {}))
        self._end = _encoder.encode(body)

    async def event(self, event: Event) -> None:
        """One event; the first one begins the stream."""
        async with self._turns:  # several answers may be streamed side by side
            if not self._streaming:
                self._streaming = True
                await self._start(200, _STREAM_HEADERS)
            await self._body(_framed(event), last=False)

    def done(self, *, says_so: bool) -> None:
        """End the stream; most of OpenAI's dialects say so."""
        self._end = _DONE if says_so else b""

    async def finish(self) -> None:
        """Send the end, if there is one: who has left gets none."""
        if self._end is not None:
            await self._body(self._end, last=True)

    async def error(self, message: str, *, code: str, status: int, param: str | None = None) -> None:
        """The request failed: a document says so, or the stream's last event, which no [DONE] follows."""
        body = error_body(message, code=code, status=status, param=param)
        if self._end is not None:
            return
        if self._streaming:
            self._end = _framed(self.failing(body))
        else:
            await self.json(body, status, _error_headers(status))

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        raw = [(name.encode(), value.encode()) for name, value in {**headers, **self.headers}.items()]
        await self._hand_over({"type": "http.response.start", "status": status, "headers": raw})

    async def _body(self, body: bytes, *, last: bool) -> None:
        await self._hand_over({"type": "http.response.body", "body": body, "more_body": not last})

    async def _hand_over(self, message: dict[str, object]) -> None:
        try:
            await self._send(message)
        except OSError as error:
            raise ClientGone("while the answer was sent") from error


def _framed(event: Event) -> bytes:
    named = b"event: " + event.name.encode() + b"\n" if event.name else b""
    return named + b"data: " + _encoder.encode(event.data) + b"\n\n"


def _error_headers(status: int) -> dict[str, str]:
    if status == 401:
        return {"www-authenticate": "Bearer"}
    return {"retry-after": "1"} if status in (429, 503) else {}
