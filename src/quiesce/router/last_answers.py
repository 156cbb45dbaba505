"""`Connection: close`: once a server stops, each answer says that it is the last of its connection."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class LastAnswers:
    """Wraps an application. The client's next request goes over a connection of its own, and elsewhere if it can.

    What it sent behind this one is not begun, as RFC 9112 (9.6) demands of whoever says `close`: the client knows that,
    and may ask again elsewhere whatever it was.
    """

    def __init__(self, app: ASGIApp, is_last: Callable[[], bool]) -> None:
        self._app, self._is_last = app, is_last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def last(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_last():
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        await self._app(scope, receive, last)
