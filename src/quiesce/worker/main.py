"""Start one worker process, serve until told to stop, settle what is held, leave."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from quiesce.control.address import parse_address, show_address
from quiesce.control.connection import Connection
from quiesce.control.handshake import refuse
from quiesce.control.hello_codec import decode_first
from quiesce.control.plain_text import why_no_name
from quiesce.control.stream import first_frame
from quiesce.control.tcp_listener import TcpListener, open_listener
from quiesce.control.whereabouts import Places
from quiesce.errors import ConfigurationError, PeerUnusable
from quiesce.ids import mint_first_tag, mint_incarnation
from quiesce.kv.allocator import PageAllocator
from quiesce.kv.storage import Pool
from quiesce.lasting import keep, making_what_lasts
from quiesce.protocol.dispatch import Attach
from quiesce.protocol.hello import Hello, OtherVersion
from quiesce.protocol.registration import Register
from quiesce.telemetry.expiry import Expiry
from quiesce.telemetry.logs import configure, ids
from quiesce.telemetry.metrics import Telemetry
from quiesce.telemetry.spans import open_spans, require_exporter
from quiesce.transport.registry import backend, require_transfer, require_trusted
from quiesce.worker.aggregated import AggregatedWorker
from quiesce.worker.compose import PRODUCT, Compose
from quiesce.worker.decode import DecodeWorker
from quiesce.worker.landing_space import written_pool
from quiesce.worker.loading import Loaded, load
from quiesce.worker.parts import Parts
from quiesce.worker.peer_discovery import hear_of
from quiesce.worker.peers import peers_of
from quiesce.worker.prefill import PrefillWorker
from quiesce.worker.reach import check_reach, check_security, security_of, warn, with_transport
from quiesce.worker.registering import Registrations
from quiesce.worker.settings import WorkerSettings
from quiesce.worker.sizes import decide_limits

log = logging.getLogger(__name__)

Worker = PrefillWorker | DecodeWorker | AggregatedWorker

WORN_OUT = 1
"""Exit code of a worker that ends by itself, for its supervisor to start it again."""

BROKEN = 70
"""Exit code after a bug of ours (the table in `quiesce.errors`)."""

FLUSH_S = 1.0
"""How long the last words to a slow router may take at the end of a drain."""

JOIN_S = 5.0


def run(settings: WorkerSettings, compose: Compose = PRODUCT, loaded: Loaded | None = None) -> int:
    """Serve until SIGTERM; the exit code. Raises ConfigurationError, MachineLacksError before anything is served."""
    configure(settings.log_level, settings.role, settings.name, settings.log_format)
    check_settings(settings)
    settings = with_transport(settings)
    warn(settings)
    with making_what_lasts():
        parts = assemble(settings, compose, loaded)
    keep()
    return asyncio.run(_serve(parts, compose))


def assemble(settings: WorkerSettings, compose: Compose = PRODUCT, loaded: Loaded | None = None) -> Parts:
    """Load the model and make the pool: everything that a worker starts from.

    Who it is, its memory and its tags are new, also where a spare has `loaded` the model.
    """
    engine = loaded.take(settings) if loaded else load(settings)
    layout = engine.layout(settings.page_size)
    limits = decide_limits(settings, engine.config.context_length, layout)
    pages = layout.pages_for(limits.pool_tokens)
    landing = None
    if limits.landing_tokens:
        landing = compose.landing(settings, layout, layout.pages_for(limits.landing_tokens))
    if settings.role == "decode" and landing is None:
        pool = written_pool(settings, layout, pages)
    else:
        pool = Pool.private(layout, pages)
    engine.bind(pool)
    if settings.unsafe_release_on_timeout:
        log.warning("UNSAFE: --unsafe-release-on-timeout frees pages that a late write may still reach")
    telemetry = Telemetry(settings.role, settings.name)
    telemetry.spans = open_spans(settings.role, settings.name, settings.otlp_endpoint)
    return Parts(
        settings,
        mint_incarnation(),
        engine,
        pool,
        PageAllocator(pages, mint_first_tag()),
        compose.door_limits(limits),
        telemetry,
        security_of(settings),
        landing,
    )


def check_settings(settings: WorkerSettings) -> None:
    """Raises ConfigurationError with every problem, before anything that takes time."""
    problems: list[str] = []
    for check in (
        lambda: check_name(settings.name),
        lambda: parse_address(settings.listen),
        lambda: [parse_address(each) for each in settings.register],
        lambda: peers_of(settings),
        lambda: check_transport(settings),
        lambda: require_exporter(settings.otlp_endpoint),
    ):
        problems += _problems(check)
    # These look at addresses that can be.
    problems = problems or [*_problems(lambda: check_security(settings)), *_problems(lambda: check_reach(settings))]
    if problems:
        raise ConfigurationError(problems)


def check_name(name: str) -> None:
    """Raises ConfigurationError for a name that a router would not register."""
    if problem := why_no_name(name):
        raise ConfigurationError([f"--name: {problem}"])


def _problems(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except ConfigurationError as error:
        return error.problems
    return []


def check_transport(settings: WorkerSettings) -> None:
    """Raises ConfigurationError for a transport that is not there, or that has to be trusted explicitly."""
    chosen = backend(settings.transport, settings.transfer)
    if settings.role != "aggregated":
        require_transfer(chosen, settings.transfer)
        require_trusted(chosen, network=settings.trust_network, library=settings.trust_transport)


async def _serve(parts: Parts, compose: Compose) -> int:
    worker = make_worker(parts, compose)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: _callback_failed(worker, loop, context))
    stopping = _stop_on_signals()
    address = parse_address(parts.settings.listen)
    listener = await open_listener(address, lambda sock: serve_connection(worker, sock), parts.security)
    where = show_address(listener.address if isinstance(listener, TcpListener) else listener.path)
    log.info("serving on %s", where, extra=ids(incarnation=parts.incarnation))
    running = asyncio.create_task(worker.run(), name="worker")
    registrations = _register(worker, where)
    expiry = Expiry(parts.security.tls, parts.telemetry)
    try:
        code = await _live(worker, running, stopping, registrations)
    except Exception:
        log.exception("this life ends by an error")
        code = BROKEN
    expiry.close()
    await registrations.close()
    await listener.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    worker.close()
    if not await _joined(worker):
        log.warning("a thread is still at work and ends with this process")
        _exit_now(code)
    return code


def _register(worker: Worker, where: str) -> Registrations:
    """Announce a worker that listens at `where` to the routers of --register."""

    def told(router: str, places: Places) -> None:
        if isinstance(worker, DecodeWorker):
            hear_of(worker.parts, worker.where, router, places)

    settings, welcome = worker.settings, worker.welcome()
    who = welcome.version, welcome.role, welcome.worker, welcome.incarnation
    said = Register(*who, settings.advertise or where, welcome.model, worker.hello())
    return Registrations(said, [parse_address(each) for each in settings.register], worker.parts.security, told)


async def _live(
    worker: Worker, running: asyncio.Task[None], stopping: asyncio.Future[None], registrations: Registrations
) -> int:
    """Serve, then drain; the exit code. Raises what broke the worker."""
    worn_out = asyncio.create_task(_until(worker.worn_out), name="worn out")
    await _first(worker, running, stopping, worn_out)
    if worn_out.done() and not stopping.done():
        log.error("over --quarantine-budget: draining, to begin a new life with fresh memory")
    worn_out.cancel()
    draining = asyncio.create_task(_drain(worker, registrations, worker.settings.grace_s), name="drain")
    try:
        await _first(worker, running, draining)
    finally:
        draining.cancel()
    return 0 if stopping.done() else WORN_OUT


async def _first(worker: Worker, running: asyncio.Task[None], *others: asyncio.Future[None]) -> None:
    """Wait for the first of `others`. Raises at once when the worker breaks."""
    waited: set[asyncio.Future[Any]] = {worker.broken, running, *others}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if worker.broken.done():
        worker.broken.result()
    if running.done():
        running.result()


def _callback_failed(worker: Worker, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A clock or a reader raised: nobody else would notice that its effects are carried out in part."""
    error = context.get("exception")
    if "handle" in context and isinstance(error, Exception):
        worker.give_up(error)
    else:
        loop.default_exception_handler(context)


async def _joined(worker: Worker) -> bool:
    """Wait for the threads of engine and transport, but not for ever: what they touch ends with the process."""
    loop, joined = asyncio.get_running_loop(), asyncio.Event()

    def join() -> None:
        worker.join()
        loop.call_soon_threadsafe(joined.set)

    threading.Thread(target=join, name="join", daemon=True).start()
    try:
        async with asyncio.timeout(JOIN_S):
            await joined.wait()
    except TimeoutError:
        return False
    return True


def _exit_now(code: int) -> NoReturn:
    logging.shutdown()
    os._exit(code)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def make_worker(parts: Parts, compose: Compose = PRODUCT) -> Worker:
    """The worker of the role that the settings name. Call it on a running loop."""
    match parts.settings.role:
        case "prefill":
            return compose.prefill(parts, compose.outlet(parts))
        case "decode":
            return compose.decode(parts, compose.intake(parts))
        case "aggregated":
            return AggregatedWorker(parts)


async def serve_connection(worker: Worker, sock: Connection) -> None:
    """The first frame says who dials: a router (or inspect), or a decode worker that wants to pair."""
    try:
        first = await first_frame(sock, decode_first)
        match first:
            case Attach():
                await worker.links.serve(sock, first)
            case Hello() if isinstance(worker, PrefillWorker):
                await worker.streams.serve(sock, first)
            case OtherVersion() if isinstance(worker, PrefillWorker):
                worker.streams.turn_away(sock, first)
            case _:
                refuse(sock, f"{worker.settings.name} is {worker.settings.role}: nobody pairs with it by HELLO")
    except PeerUnusable as error:
        what = "a connection was refused"
        worker.parts.lines.say(log, logging.WARNING, what, what, reason=error)


def _stop_on_signals() -> asyncio.Future[None]:
    """Done at the first SIGTERM or SIGINT; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if stopping.done():
            _exit_now(1)
        stopping.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


async def _drain(worker: Worker, registrations: Registrations, grace_s: float) -> None:
    log.info("draining for at most %.0f s", grace_s)
    quiet, _ = await asyncio.gather(worker.drain(grace_s), registrations.leave())
    await worker.links.flush(FLUSH_S)
    log.log(logging.INFO if quiet else logging.WARNING, "drained" if quiet else "left with unsettled requests")
