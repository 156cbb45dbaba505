"""What a front tells of its worker, under SGLang's names and in its shapes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from quiesce import __version__
from quiesce.api.responses import Model, ModelList, Status
from quiesce.errors import QuiesceError, RequestRejected
from quiesce.protocol.dispatch import Sampling, Welcome, WorkerSnapshot
from quiesce.protocol.pairing import CallOff
from quiesce.router.access import refuse_pages, refuse_unsigned
from quiesce.router.failures import PROBE_OVER
from quiesce.router.front.leg import Leg
from quiesce.router.front.service import FrontOrder, FrontService
from quiesce.router.pairs import Pair, misspoken

_PROBE_S = 60.0

FLUSH_S = 30.0
"""How long `/flush_cache` waits for requests that still read what it forgot."""

View = Callable[[Request], Awaitable[Response]]


class ModelInfo(msgspec.Struct, frozen=True):
    """Of `/model_info`. `weight_version` changes with the weights."""

    model_path: str
    tokenizer_path: str
    served_model_name: str
    weight_version: str
    is_generation: bool = True


class ServerInfo(msgspec.Struct, frozen=True):
    """Of `/server_info`. `disaggregation_mode` is prefill, decode or null (text, as SGLang says it)."""

    model_path: str
    tokenizer_path: str
    served_model_name: str
    disaggregation_mode: str
    disaggregation_bootstrap_port: int
    host: str
    port: int
    context_length: int
    max_total_num_tokens: int
    page_size: int
    max_queued_requests: int
    worker: str
    status: str
    version: str = __version__
    tp_size: int = 1
    dp_size: int = 1


class LoadView(msgspec.Struct, frozen=True):
    """Of `/v1/loads`, and of `/get_load`, which calls the sums `num_reqs` and `num_tokens`."""

    num_running_reqs: int
    num_waiting_reqs: int
    num_reqs: int
    num_used_tokens: int
    num_tokens: int
    max_total_num_tokens: int
    token_usage: float
    dp_rank: int = 0


class Loads(msgspec.Struct, frozen=True):
    loads: tuple[LoadView, ...]
    dp_rank_count: int = 1


class Flushed(msgspec.Struct, frozen=True):
    success: bool
    message: str


class FrontViews:
    """Everything but /health needs the front's key."""

    def __init__(self, service: FrontService, host: str, port: int) -> None:
        self._service, self._host, self._port = service, host, port

    def keyed(self, view: View) -> View:
        """`view` for those who show the key, and while the worker is here."""

        async def checked(request: Request) -> Response:
            self._service.keys.check(request.headers)
            return await view(request)

        return checked

    async def health(self, request: Request) -> Response:
        """Whether a request should be sent here: the worker is connected, answers pings, is ready and has a partner."""
        if trouble := self._service.trouble():
            return _json(Status("not ready", trouble), 503)
        return _json(Status("ok"))

    async def health_generate(self, request: Request) -> Response:
        """An aggregated worker generates a token. Half of a pair cannot: that its loop answers a question must do."""
        trouble = self._service.trouble()
        if not trouble:
            trouble = await (self._generate() if self._service.role == "aggregated" else self._ask())
        return _json(Status("not ready", trouble), 503) if trouble else _json(Status("ok"))

    async def server_info(self, request: Request) -> Response:
        welcome, model = self._welcome(), self._service.settings.model
        mode = "null" if welcome.role == "aggregated" else welcome.role
        bootstrap = self._port if welcome.role == "prefill" else 0
        limits = (welcome.context_length, welcome.pool_tokens, welcome.page_size, welcome.max_queue)
        about = (model, model, self._service.model_name, mode, bootstrap, self._host, self._port)
        return _json(ServerInfo(*about, *limits, welcome.worker, self._service.trouble() or "ready"))

    async def model_info(self, request: Request) -> Response:
        model = self._service.settings.model
        return _json(ModelInfo(model, model, self._service.model_name, self._welcome().model_fingerprint))

    async def loads(self, request: Request) -> Response:
        return _json(Loads((self._load(),)))

    async def load(self, request: Request) -> Response:
        return _json([self._load()])

    async def models(self, request: Request) -> Response:
        return _json(ModelList([Model(self._service.model_name, 0, self._welcome().context_length)]))

    async def flush_cache(self, request: Request) -> Response:
        """Prefixes that running requests read are forgotten at once, too; their pages are free when those end."""
        refuse_pages(request.headers)
        if request.method != "POST":
            refuse_unsigned(request.headers)
        self._welcome()
        if why := misspoken(self._service.link):
            message = f"{self._service.link.name} {why}: it was not asked, and forgot nothing."
            raise RequestRejected(message, code="version_mismatch", status=503)
        if await self._service.fleet.flush(self._service.link, FLUSH_S):
            return _json(Flushed(True, "Every cached prefix is forgotten, and its pages are free."))
        message = f"Cached prefixes are forgotten, but requests still read some after {FLUSH_S:g} s; ask again."
        return _json(Flushed(False, message), 503)

    def _welcome(self) -> Welcome:
        if self._service.link.welcome is None:
            raise RequestRejected("The worker is not connected.", code="no_workers", status=503)
        return self._service.link.welcome

    def _load(self) -> LoadView:
        welcome, load = self._welcome(), self._service.link.load
        used = max(0, welcome.pool_tokens - load.free_tokens)
        waiting = load.waiting + self._service.queued()
        counts = (load.running, waiting, load.running + waiting, used, used, welcome.pool_tokens)
        return LoadView(*counts, token_usage=used / max(1, welcome.pool_tokens))

    async def _ask(self) -> str:
        seen = await self._service.fleet.look(self._service.link)
        return "" if isinstance(seen, WorkerSnapshot) else "it does not answer"

    async def _generate(self) -> str:
        order = FrontOrder(
            token_ids=self._service.text.encode("Ready?").astype("<u4").tobytes(),
            prompt_tokens=len(self._service.text.encode("Ready?")),
            sampling=Sampling(temperature=0.0, seed=0),
            max_tokens=1,
            timeout_s=_PROBE_S,
            leg=Leg(Pair(self._service.link), ()),
        )
        generation = self._service.probe(order)
        generation.ending = CallOff(PROBE_OVER)
        try:
            async with aclosing(generation.tokens()) as frames:
                async for _tokens in frames:
                    pass
        except QuiesceError as error:
            return f"a test generation failed: {error}"
        return ""


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
