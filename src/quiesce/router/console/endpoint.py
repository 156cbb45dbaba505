"""`/console`: the page, its data, and the form that asks for its key."""

from __future__ import annotations

import asyncio
import secrets
import time
from urllib.parse import parse_qs

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from quiesce.errors import RequestRejected
from quiesce.protocol.breaker import Phase
from quiesce.router.console.door import Door
from quiesce.router.console.pagemap import STATES, PageMap
from quiesce.router.console.view import View, make_view, show_s
from quiesce.router.service import Service

FRESH_S = 0.4
"""Several browsers that look at once cost the workers one look."""

MOST_FORM_BYTES = 4096

_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Fragment(msgspec.Struct, frozen=True):
    """A part of the page; a browser replaces it when `mark` changes."""

    mark: str
    html: str


class Data(msgspec.Struct, frozen=True):
    """What a browser polls."""

    ready: bool
    trouble: str
    figures: dict[str, str]
    fragments: dict[str, Fragment]
    maps: dict[str, PageMap]
    tokens: list[int]


def console_routes(service: Service) -> list[Route]:
    """No key, no console."""
    if service.settings.console_key is None:
        return []
    console = Console(service, Door(service.settings.console_key))
    return [
        Route("/console", console.page, methods=["GET"]),
        Route("/console", console.log_in, methods=["POST"]),
        Route("/console/leave", console.log_out, methods=["POST"]),
        Route("/console/data", console.data, methods=["GET"]),
    ]


class Console:
    """Looks at the fleet when somebody looks at it."""

    def __init__(self, service: Service, door: Door) -> None:
        self._service = service
        self._door = door
        self._templates = _templates()
        self._looked_s = 0.0
        self._view: View | None = None
        self._looking = asyncio.Lock()

    async def page(self, request: Request) -> Response:
        if not self._door.lets_in(request):
            return self._form("", 401 if "authorization" in request.headers else 200)
        view = await self._look()
        data = self._data(view)
        return self._html("console.html", 200, view=view, data=data, initial=_script_json(data))

    async def data(self, request: Request) -> Response:
        if not self._door.lets_in(request):
            raise RequestRejected("The console's key is missing or wrong.", code="invalid_console_key", status=401)
        body = msgspec.json.encode(self._data(await self._look()))
        return Response(body, headers=_HEADERS, media_type="application/json")

    async def log_in(self, request: Request) -> Response:
        if not self._door.is_key(await _form_key(request)):
            return self._form("This is not the key.", 401)
        response = RedirectResponse("/console", 303, headers=_HEADERS)
        self._door.open_session(request, response)
        return response

    async def log_out(self, request: Request) -> Response:
        response = RedirectResponse("/console", 303, headers=_HEADERS)
        self._door.end_session(request, response)
        return response

    # ------------------------------------------------------------ looking

    async def _look(self) -> View:
        async with self._looking:
            if self._view is None or time.monotonic() - self._looked_s > FRESH_S:
                self._view = await self._look_now()
                self._looked_s = time.monotonic()
            return self._view

    async def _look_now(self) -> View:
        service = self._service
        seen = await service.fleet.inspect()
        trouble = service.why_not_ready()
        broken = service.fleet.breakers.names_in(Phase.OPEN, Phase.HALF_OPEN)
        return make_view(service.model_name, trouble, service.fleet.links, seen, service.meter.throughput, broken)

    # ------------------------------------------------------------ showing

    def _data(self, view: View) -> Data:
        pools = ",".join(f"{pool.name} {pool.life} {pool.trouble}" for pool in view.pools)
        fragments = {
            "pools": Fragment(pools, self._render("pools", view)),
            "holds": Fragment(html := self._render("holds", view), html),
            "rooms": Fragment(html := self._render("rooms", view), html),
        }
        maps = {pool.name: pool.map for pool in view.pools if pool.map is not None}
        return Data(not view.trouble, view.trouble, view.figures, fragments, maps, view.tokens)

    def _render(self, name: str, view: View) -> str:
        return self._templates.get_template(f"{name}.html").render(view=view)

    def _form(self, problem: str, status: int) -> Response:
        return self._html("login.html", status, problem=problem)

    def _html(self, name: str, status: int, **values: object) -> Response:
        nonce = secrets.token_urlsafe(16)
        text = self._templates.get_template(name).render(nonce=nonce, **values)
        return Response(text, status, {**_HEADERS, "content-security-policy": _policy(nonce)}, "text/html")


async def _form_key(request: Request) -> str:
    """The `key` of an urlencoded form; "" when there is none. Raises RequestRejected for a large body."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise RequestRejected("The form is too large.", code="body_too_large", status=413)
    return parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0]


def _policy(nonce: str) -> str:
    """Nothing from anywhere but this page itself, and no page around it."""
    return (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _script_json(data: Data) -> Markup:
    """JSON that cannot end the script element that holds it."""
    text = msgspec.json.encode(data).decode()
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704 - escaped here


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("quiesce.router.console", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = show_s
    environment.globals["states"] = STATES
    return environment
