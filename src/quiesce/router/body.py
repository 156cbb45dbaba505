"""Reading a request's body, and noticing that its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive

from quiesce.errors import RequestRejected
from quiesce.router.failures import ClientGone
from quiesce.router.intake import Share, too_large, too_slow

_CURL_SENDS = ("", "application/x-www-form-urlencoded")
_BROWSERS_SEND = ("origin", "sec-fetch-site", "sec-fetch-mode")


async def read_body(headers: Headers, receive: Receive, share: Share) -> bytes:
    """The whole body. Raises RequestRejected (408, 413, 415, 503) as soon as it is certain, ClientGone."""
    _check_headers(headers, share.limit_bytes)
    try:
        async with asyncio.timeout(share.within_s):
            return await _whole(receive, share)
    except TimeoutError:
        raise too_slow(share.within_s) from None


async def _whole(receive: Receive, share: Share) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("during the body")
        parts.append(message.get("body", b""))
        share.take(len(parts[-1]))
        if not message.get("more_body", False):
            return b"".join(parts)


async def unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end; when the client disconnects first, cancel it and raise ClientGone."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone("while it waited for the answer")
        working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _check_headers(headers: Headers, limit_bytes: int) -> None:
    _check_kind(headers)
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit_bytes:
        raise too_large(limit_bytes)


def _check_kind(headers: Headers) -> None:
    """JSON, or what a plain `curl -d` says it is: nothing, or a form.

    A browser may send any page's text, forms and bodies without a type here without asking, but not application/json.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    from_browser = any(name in headers for name in _BROWSERS_SEND)
    if kind == "application/json" or (kind in _CURL_SENDS and not from_browser):
        return
    said = f"not {kind[:100]!r}" if kind else "which is missing"
    raise RequestRejected(
        f"Content-Type must be application/json, {said}. Add the header Content-Type: application/json.",
        code="unsupported_media_type",
        status=415,
    )
