"""`x-request-id`: the name that a client gives a request, in its logs and ours. It identifies nothing here."""

from __future__ import annotations

import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"

_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+=@/-]{0,127}", re.ASCII)
_STATE = "quiesce.request_name"


def request_name(scope: Scope) -> str:
    """What this request is called in logs: the client's `x-request-id`, or one of ours."""
    return str(scope.get(_STATE, ""))


class RequestNames:
    """Wraps an application: every answer says `x-request-id`. One that logs cannot bear is replaced by ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[_STATE] = name = _accepted(Headers(scope=scope)) or f"router-{secrets.token_hex(12)}"

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        await self._app(scope, receive, named)


def _accepted(headers: Headers) -> str:
    given = headers.get(HEADER, "")
    return given if _NAMED.fullmatch(given) else ""
