"""`POST /abort_request`, in SGLang's shape: `{"rid": "chatcmpl-..."}` ends a request that the same key began.

The admin key ends anybody's, and with `abort_all` everybody's.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from quiesce.api.reading import invalid, read
from quiesce.api.requests import AbortBody
from quiesce.api.responses import Status
from quiesce.errors import RequestRejected
from quiesce.router.body import read_body
from quiesce.router.running import Owner, owner_of
from quiesce.router.service import Service


class AbortEndpoint:
    """Both halves are cancelled before this answers; what they hold is given back on proof, as at any other end."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def abort(self, request: Request) -> Response:
        by_admin = self._service.admin.is_shown(request.headers)
        if not by_admin:
            self._service.keys.check(request.headers)
        with self._service.intake.share() as share:
            body = read(await read_body(request.headers, request.receive, share), AbortBody)
        if body.abort_all:
            await self._abort_all(by_admin)
        else:
            await self._abort_one(body.rid, None if by_admin else owner_of(request.headers))
        return Response(msgspec.json.encode(Status("aborted")), media_type="application/json")

    async def _abort_all(self, by_admin: bool) -> None:
        if not by_admin:
            message = "abort_all needs the admin key (--admin-key); name each request by its rid."
            raise RequestRejected(message, code="admin_key_needed", status=403, param="abort_all")
        await self._service.running.abort_all()

    async def _abort_one(self, rid: str | None, owner: Owner | None) -> None:
        if rid is None:
            raise invalid("rid is missing.", "rid")
        if not await self._service.running.abort(rid, owner):
            message = "No request of yours with this id is running; it may be over."
            raise RequestRejected(message, code="request_not_found", status=404, param="rid")
