"""`POST /flush_cache`: every worker forgets the prefixes it has cached."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from quiesce.api.responses import Status
from quiesce.errors import RequestRejected
from quiesce.router.access import refuse_pages
from quiesce.router.pairs import misspoken
from quiesce.router.service import Service

FLUSH_S = 30.0
"""How long it waits for requests that still read what was forgotten."""


class FlushEndpoint:
    """For the operator. Prefixes are forgotten at once; it answers when their pages are free."""

    def __init__(self, service: Service, within_s: float = FLUSH_S) -> None:
        self._service = service
        self._within_s = within_s

    async def flush(self, request: Request) -> Response:
        refuse_pages(request.headers)
        self._service.admin.check_change(request.headers)
        fleet = self._service.fleet
        strange = {link.name: why for link in fleet.present if (why := misspoken(link))}
        links = [link for link in fleet.present if link.name not in strange]
        free = await asyncio.gather(*(fleet.flush(link, self._within_s) for link in links))
        reading = ", ".join(link.name for link, is_free in zip(links, free, strict=True) if not is_free)
        if reading:
            message = (
                f"Cached prefixes are forgotten and none is shared any more, but after {self._within_s:g} s requests "
                f"still read some on {reading}. Nothing new is cached there until they end."
            )
            raise RequestRejected(message, code="cache_in_use", status=503)
        if strange:
            who = "; ".join(f"{name} {why}" for name, why in strange.items())
            message = f"Not every worker was asked, and those forgot nothing: {who}. The others have forgotten all."
            raise RequestRejected(message, code="version_mismatch", status=503)
        return Response(msgspec.json.encode(Status("flushed")), media_type="application/json")
