"""The router's HTTP surface: which path is answered by what."""

from __future__ import annotations

import logging
import time
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ExceptionHandler

from quiesce import __version__
from quiesce.api.asked import read_chat, read_completion
from quiesce.api.items import read_response
from quiesce.api.responses import Model, ModelList, Status, Version, error_body
from quiesce.api.specification import specification
from quiesce.errors import RequestRejected
from quiesce.router.aborting import AbortEndpoint
from quiesce.router.console.endpoint import console_routes
from quiesce.router.dialects import ChatDialect, CompletionDialect
from quiesce.router.endpoint import GenerateEndpoint
from quiesce.router.failures import CLIENT_GONE, ClientGone
from quiesce.router.flushing import FlushEndpoint
from quiesce.router.pairs import limits_of
from quiesce.router.response_dialect import ResponseDialect
from quiesce.router.service import Service
from quiesce.router.tokenization import Tokenization
from quiesce.telemetry.merge import merge_expositions
from quiesce.telemetry.metrics import CONTENT_TYPE

_CODES = {404: "not_found", 405: "method_not_allowed"}

_log = logging.getLogger(__name__)


def build_app(service: Service) -> Starlette:
    """The ASGI application."""
    views = Views(service)
    chat = GenerateEndpoint(service, read_chat, ChatDialect)
    tokenization = Tokenization(service)
    completion = GenerateEndpoint(service, read_completion, CompletionDialect)
    response = GenerateEndpoint(service, read_response, ResponseDialect)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", completion, methods=["POST"]),
            Route("/v1/responses", response, methods=["POST"]),
            Route("/v1/models", views.models),
            Route("/v1/models/{name:path}", views.model),
            Route("/tokenize", tokenization.tokenize, methods=["POST"]),
            Route("/detokenize", tokenization.detokenize, methods=["POST"]),
            Route("/abort_request", AbortEndpoint(service).abort, methods=["POST"]),
            Route("/flush_cache", FlushEndpoint(service).flush, methods=["POST"]),
            Route("/version", views.version),
            Route("/openapi.json", views.openapi),
            Route("/health", views.health),
            Route("/readiness", views.readiness),
            Route("/metrics", views.metrics),
            *console_routes(service),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    # A redirect would name whatever host the client wrote into its Host header.
    app.router.redirect_slashes = False
    return app


class Views:
    """The small endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(time.time())
        self._specification = msgspec.json.encode(specification(__version__))

    async def models(self, request: Request) -> Response:
        self._service.keys.check(request.headers)
        return _json(ModelList([self._model()]))

    async def model(self, request: Request) -> Response:
        self._service.keys.check(request.headers)
        self._service.check_model(request.path_params["name"])
        return _json(self._model())

    async def health(self, request: Request) -> Response:
        """The router is up; nothing is said of workers."""
        return _json(Status("ok"))

    async def readiness(self, request: Request) -> Response:
        """The status is for all; the reason, who is refused and, if asked for, who serves, for those who may look."""
        reason, fleet = self._service.why_not_ready(), self._service.fleet
        told = Status("not ready" if reason else "ready")
        if self._service.admin.may_look(request.headers):
            told = Status(told.status, reason or None, fleet.objections.listed())
            if "pairs" in request.query_params:
                serving, more = fleet.serving.listed(), fleet.serving.unlisted()
                unused = () if reason else fleet.unused()
                told = msgspec.structs.replace(told, serving=serving, more_serving=more, unused=unused)
        return _json(told, 503 if reason else 200)

    async def version(self, request: Request) -> Response:
        return _json(Version(__version__))

    async def openapi(self, request: Request) -> Response:
        return Response(self._specification, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """The router's and all workers'. Open unless there is an admin key: there is no text of a user in them."""
        self._service.admin.check_look(request.headers)
        objections = self._service.fleet.objections
        self._service.meter.ready(not self._service.why_not_ready())
        self._service.meter.unused(len(objections.refused), len(objections.unfit))
        texts = [self._service.meter.telemetry.render(), *await self._service.fleet.scrape()]
        return Response(merge_expositions(texts), media_type=CONTENT_TYPE)

    def _model(self) -> Model:
        known = [limits_of(link).context_length for link in self._service.fleet.present]
        return Model(self._service.model_name, self._created, min(known, default=self._service.text.context_length))


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def _rejected(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestRejected):
        return _bug(request, error)
    return _json(error_body(error.message, code=error.code, status=error.status, param=error.param), error.status)


def _client_gone(request: Request, error: Exception) -> Response:
    """Nobody reads it."""
    return Response(status_code=CLIENT_GONE.status)


def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 in OpenAI's shape."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    code = _CODES.get(status, "invalid_request")
    message = f"{request.method} {request.url.path[:200]} is not served here."
    response = _json(error_body(message, code=code, status=status), status)
    response.headers.update(headers or {})
    return response


def _bug(request: Request, error: Exception) -> Response:
    """Starlette logs nothing of it; `main` does, through the server's error logger."""
    return _json(error_body("Internal error.", code="internal_error", status=500), 500)


EXCEPTION_HANDLERS: dict[Any, ExceptionHandler] = {
    HTTPException: _http_error,
    RequestRejected: _rejected,
    ClientGone: _client_gone,
    Exception: _bug,
}
"""How each error is answered, here and at fronts."""
