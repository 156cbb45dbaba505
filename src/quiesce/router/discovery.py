"""Which workers the router uses: of --worker, --workers-file, --workers-srv, and those that announce themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from quiesce.control.address import Address, parse_address
from quiesce.control.discovery import FILE, follow
from quiesce.control.security import Security, load_security, require_security, require_spanning
from quiesce.control.srv import check_srv
from quiesce.control.tcp_listener import TcpListener, open_listener
from quiesce.control.whereabouts import Places, Whereabouts
from quiesce.control.workers_file import NamedWorkers, read_workers
from quiesce.router.fleet import Fleet
from quiesce.router.meter import Meter
from quiesce.router.registry import Registry
from quiesce.router.settings import RouterSettings


def check_workers(settings: RouterSettings) -> Security:
    """What protects the way to the workers. Raises ConfigurationError, MachineLacksError."""
    security = load_security(settings.tls_cert, settings.tls_key, settings.tls_ca, insecure=settings.insecure)
    listen = () if settings.control_listen is None else (parse_address(settings.control_listen),)
    require_security([*first_workers(settings), *listen], security)
    if settings.workers_srv:
        require_spanning("--workers-srv", security)
        check_srv(settings.workers_srv, settings.dns_server)
    return security


def first_workers(settings: RouterSettings) -> list[Address]:
    """Those of --worker and of --workers-file, as it is now. Raises ConfigurationError."""
    workers = [parse_address(worker) for worker in settings.worker]
    if settings.workers_file is not None:
        workers += read_workers(Path(settings.workers_file)).everywhere
    return workers


@contextlib.asynccontextmanager
async def discovery(settings: RouterSettings, fleet: Fleet, meter: Meter) -> AsyncIterator[list[asyncio.Future[None]]]:
    """Keep the fleet to what the sources say: tasks that run until they are cancelled, which whoever enters has to do.

    Raises ConfigurationError when --control-listen cannot be had.
    """
    where, rules = Whereabouts(lambda places: fleet.expect(list(places))), _Rules(fleet.security)
    where.say("--worker", dict.fromkeys(map(parse_address, settings.worker), ""))
    if settings.workers_file is not None:
        where.say(FILE, rules.of_file(read_workers(Path(settings.workers_file))))
    following = [follow(settings, where, rules)] if settings.workers_file or settings.workers_srv else []
    async with contextlib.AsyncExitStack() as opened:
        if settings.control_listen is not None:
            registry = Registry(fleet, where, meter.registration)
            address = parse_address(settings.control_listen)
            listener = await open_listener(address, registry.serve, fleet.security)
            opened.push_async_callback(listener.stop)
            registry.own.listens_at(listener.address if isinstance(listener, TcpListener) else listener.path)
            following.append(registry.run())
        yield [asyncio.ensure_future(each) for each in following]


class _Rules:
    def __init__(self, security: Security) -> None:
        self._security = security

    def of_file(self, named: NamedWorkers) -> Places:
        return dict.fromkeys(named.everywhere, "")

    def check(self, addresses: Iterable[Address]) -> None:
        require_security(addresses, self._security)
