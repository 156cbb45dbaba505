"""The router process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

import uvicorn

from quiesce.control.security import INSECURE_WARNING
from quiesce.errors import InvariantBroken
from quiesce.lasting import keep, making_what_lasts
from quiesce.router.app import build_app
from quiesce.router.breakers import Breakers
from quiesce.router.capacity import AT_ONCE, make_room, most_connections
from quiesce.router.connection import RECENT_S, Limits, connections_within
from quiesce.router.discovery import check_workers, discovery, first_workers
from quiesce.router.fleet import Fleet
from quiesce.router.front.app import ByPort
from quiesce.router.front.ports import Front, open_fronts
from quiesce.router.last_answers import LastAnswers
from quiesce.router.listening import BACKLOG, bind, callers_in
from quiesce.router.meter import Meter
from quiesce.router.request_names import RequestNames
from quiesce.router.service import Service
from quiesce.router.settings import RouterSettings
from quiesce.telemetry import logs
from quiesce.telemetry.expiry import Expiry
from quiesce.telemetry.metrics import Telemetry
from quiesce.telemetry.spans import open_spans, require_exporter
from quiesce.text.model import TextModel

_KEEP_ALIVE_S = 75
_GOODBYE_S = 1.0
"""How long clients have to take the error that ends their request, while others take theirs once more as long."""
_ONE_SIGNAL_S = 1.0
"""SIGTERM again within this is the same one: a service manager sends it to all processes, and `quiesce serve` to us."""
_CALLERS_S = 0.5
_SEEN_OFF_S = RECENT_S + 0.5
_CUT_S = 0.2

_log = logging.getLogger(__name__)


def run(settings: RouterSettings, text: TextModel | None = None) -> int:
    """Serve until SIGTERM or SIGINT; a second one ends at once. Returns the exit code, 0 unless a bug of ours ended it.

    `text` is the model's text side where it has been loaded already.
    Raises ConfigurationError, MachineLacksError.
    """
    require_exporter(settings.otlp_endpoint)
    logs.configure(settings.log_level, "router", "router", settings.log_format)
    if check_workers(settings).insecure:
        _log.warning(INSECURE_WARNING)
    make_room(settings)
    with making_what_lasts():
        text = text or TextModel.load(settings.model)
    keep()
    return asyncio.run(_serve(settings, text))


async def _serve(settings: RouterSettings, text: TextModel) -> int:
    async with router(settings, text) as server:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.on_signal)
        if settings.tenants is not None:
            loop.add_signal_handler(signal.SIGHUP, server.service.keys.reload)
        await server.serve()
        return server.exit_code


@contextlib.asynccontextmanager
async def router(settings: RouterSettings, text: TextModel) -> AsyncIterator[Server]:
    """A router whose links and probes run, and whose socket is bound; `serve` the server to accept requests."""
    meter = Meter(Telemetry("router", "router"))
    spans = open_spans("router", "router", settings.otlp_endpoint)
    security = check_workers(settings)
    breakers = Breakers(settings.breaker_failures, meter.breaker_moved)
    workers = first_workers(settings)
    fleet = Fleet(workers, meter.restarted, spans=spans, model=text.name, breakers=breakers, security=security)
    service = Service(settings, text, fleet, meter)
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(service.close)
        opened.callback(Expiry(security.tls, meter.telemetry).close)
        sock = opened.enter_context(bind(settings.host, settings.port))
        fronts = open_fronts(service, taken=sock.getsockname()[1])
        for front in fronts:
            opened.enter_context(front.sock)
        discovering = await opened.enter_async_context(discovery(settings, fleet, meter))
        async with _running(service, sock, fronts, discovering) as server:
            yield server


@contextlib.asynccontextmanager
async def _running(
    service: Service, sock: socket.socket, fronts: Sequence[Front], discovering: Sequence[asyncio.Future[None]]
) -> AsyncIterator[Server]:
    fleet = service.fleet
    probing = asyncio.ensure_future(service.readiness.run())
    running = [asyncio.ensure_future(fleet.run()), probing, *discovering]
    server = Server(service, sock, probing, fronts)
    for task in running:
        task.add_done_callback(server.on_task_end)
    try:
        yield server
    finally:
        fleet.stopping = True
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Server(uvicorn.Server):
    """uvicorn on our loop, with our signals: SIGTERM ends it with exit code 0, after requests had their grace.

    It is not uvicorn that ends requests: it would cancel them, and their clients would see a cut connection.
    """

    def __init__(
        self, service: Service, sock: socket.socket, probing: asyncio.Future[None], fronts: Sequence[Front] = ()
    ) -> None:
        self.service = service
        self._sock = sock
        self._socks = [sock, *(front.sock for front in fronts)]
        self._probing = probing
        self._hurry = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        self._told_s = self._deadline_s = math.inf
        self.port: int = sock.getsockname()[1]
        self.exit_code = 0
        self.front_ports = [front.port for front in fronts]
        self._closed = False
        super().__init__(_config(service, fronts, lambda: self._closed))

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("listening", extra=logs.ids(address=self.service.settings.host, port=self.port))
        await super().serve(self._socks)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio takes one number for the kernel's queue and for how many it accepts in one go.
        for sock in self._socks:
            sock.listen(BACKLOG)

    def on_signal(self) -> None:
        """Told to stop, or, some time later, to end at once."""
        if self._draining is None:
            self._told_s = _now_s()
        elif _now_s() < self._told_s + _ONE_SIGNAL_S:
            return
        self.stop()

    def stop(self) -> None:
        """Be ready no more; after the delay begin nothing more and let requests finish within the grace.

        When called again, end them now. Until they have, the port stays open: who asks hears that the server is
        stopping, /readiness included.
        """
        if self._draining is None:
            self.service.stopping.leaving = True
            self._draining = asyncio.ensure_future(self._drain())
        else:
            self._hurry.set()

    async def _drain(self) -> None:
        settings, stopping = self.service.settings, self.service.stopping
        if settings.drain_delay_s:
            await _first((self._hurry.wait(),), settings.drain_delay_s)
        self._deadline_s = _now_s() + settings.grace_s
        stopping.draining = True
        await _first((stopping.idle(), self._hurry.wait()), settings.grace_s)
        self.should_exit = True

    def on_task_end(self, task: asyncio.Future[None]) -> None:
        """Without links or probes a router is deaf or blind: it stops, and whoever supervises it starts another one."""
        if task.cancelled():
            return
        _log.critical("a task of the router ended; it stops", exc_info=task.exception())
        self.exit_code = InvariantBroken.exit_code
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End every request, by itself or by us, answer who has called meanwhile, and only then close the port."""
        self._probing.cancel()
        self.service.stopping.leaving = self.service.stopping.draining = True
        await self._end_requests()
        await callers_in(self._socks, _CALLERS_S)
        self._closed = True
        leaving = asyncio.ensure_future(self._see_off())
        try:
            await super().shutdown(sockets)
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _end_requests(self) -> None:
        left_s = min(self.service.settings.grace_s, self._deadline_s - _now_s())
        stopping = self.service.stopping
        await _first((stopping.idle(), self._hurry.wait()), max(0.0, left_s))
        when = "second signal" if self._hurry.is_set() else "grace period"
        if count := stopping.call_off():
            _log.warning("%d %s ended at the %s", count, "request" if count == 1 else "requests", when)
            await _first((stopping.idle(),), _GOODBYE_S)
            if 0 < stopping.running < count:
                await _first((stopping.idle(),), _GOODBYE_S)

    async def _see_off(self) -> None:
        """Who does not read the last answer, or does not go, is cut off."""
        await asyncio.sleep(_SEEN_OFF_S)
        self._cut_connections()
        await asyncio.sleep(_CUT_S)
        self.force_exit = True

    def _cut_connections(self) -> None:
        """Of clients that do not read: their requests see that they are gone."""
        for connection in list(self.server_state.connections):
            if transport := getattr(connection, "transport", None):
                transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _first(events: Iterable[Coroutine[Any, Any, object]], within_s: float) -> None:
    """Wait for one of these, but not for longer than this."""
    waiting = [asyncio.ensure_future(event) for event in events]
    await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _config(service: Service, fronts: Sequence[Front], is_closed: Callable[[], bool]) -> uvicorn.Config:
    settings = service.settings
    limits = Limits(most_connections(settings), settings.receive_timeout_s, _KEEP_ALIVE_S)
    app = ByPort(build_app(service), {front.port: front.app for front in fronts})
    return uvicorn.Config(
        RequestNames(LastAnswers(app, lambda: service.stopping.leaving)),
        lifespan="off",
        ws="none",
        http=connections_within(limits, is_closed),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=None,
        backlog=AT_ONCE,
    )
