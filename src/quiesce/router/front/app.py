"""One application per front, and which port leads to which."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quiesce.api.asked import Asked, read_chat, read_completion
from quiesce.router.aborting import AbortEndpoint
from quiesce.router.app import EXCEPTION_HANDLERS
from quiesce.router.dialects import ChatDialect, CompletionDialect, Dialect
from quiesce.router.front.endpoint import DecodeLeg, Leaning, PrefillLeg
from quiesce.router.front.native import NativeDialect, read_generate
from quiesce.router.front.service import FrontService
from quiesce.router.front.views import FrontViews

_DIALECTS: Mapping[str, tuple[Callable[..., Asked], type[Dialect]]] = {
    "/generate": (read_generate, NativeDialect),
    "/v1/chat/completions": (read_chat, ChatDialect),
    "/v1/completions": (read_completion, CompletionDialect),
}


def build_front(service: FrontService, host: str, port: int) -> Starlette:
    """What is served at one worker's port."""
    views = FrontViews(service, host, port)
    told = {
        "/health_generate": views.health_generate,
        "/server_info": views.server_info,
        "/get_server_info": views.server_info,
        "/model_info": views.model_info,
        "/get_model_info": views.model_info,
        "/v1/loads": views.loads,
        "/get_load": views.load,
        "/v1/models": views.models,
    }
    app = Starlette(
        routes=[
            *(Route(path, _leaning(service, *dialect), methods=["POST"]) for path, dialect in _DIALECTS.items()),
            *(Route(path, views.keyed(view), methods=["GET"]) for path, view in told.items()),
            Route("/health", views.health, methods=["GET"]),
            Route("/flush_cache", views.keyed(views.flush_cache), methods=["GET", "POST"]),
            Route("/abort_request", AbortEndpoint(service).abort, methods=["POST"]),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.router.redirect_slashes = False
    return app


def _leaning(service: FrontService, read: Callable[..., Asked], dialect: type[Dialect]) -> Leaning:
    return Leaning(service, DecodeLeg(service, read, dialect), PrefillLeg(service, read))


class ByPort:
    """A front's application at its port, `rest` elsewhere. The port is the socket's, never the client's word."""

    def __init__(self, rest: ASGIApp, fronts: Mapping[int, ASGIApp]) -> None:
        self._rest, self._fronts = rest, fronts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, port = scope.get("server") or ("", 0)
        await self._fronts.get(port, self._rest)(scope, receive, send)
