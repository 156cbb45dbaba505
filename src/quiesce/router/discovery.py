"""Which workers the router uses: those of --worker, of --workers-file and of --workers-srv."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quiesce.control.address import Address, parse_address
from quiesce.control.discovery import FILE, follow
from quiesce.control.security import Security, load_security, require_security, require_spanning
from quiesce.control.srv import check_srv
from quiesce.control.whereabouts import Places, Whereabouts
from quiesce.control.workers_file import NamedWorkers, read_workers
from quiesce.router.fleet import Fleet
from quiesce.router.settings import RouterSettings


def check_workers(settings: RouterSettings) -> Security:
    """What protects the way to the workers. Raises ConfigurationError, MachineLacksError."""
    security = load_security(settings.tls_cert, settings.tls_key, settings.tls_ca, insecure=settings.insecure)
    require_security(first_workers(settings), security)
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


class Discovery:
    """Keeps the fleet to what the sources say. `where` is told by whoever else knows workers."""

    def __init__(self, settings: RouterSettings, fleet: Fleet) -> None:
        self._settings = settings
        self._security = fleet.security
        self.where = Whereabouts(lambda places: fleet.expect(list(places)))
        self.where.say("--worker", dict.fromkeys(map(parse_address, settings.worker), ""))
        if settings.workers_file is not None:
            self.where.say(FILE, self.of_file(read_workers(Path(settings.workers_file))))

    @property
    def follows(self) -> bool:
        """Whether anything can change while the router runs."""
        return bool(self._settings.workers_file or self._settings.workers_srv)

    async def run(self) -> None:
        """For ever, when there is something to follow."""
        await follow(self._settings, self.where, self)

    def of_file(self, named: NamedWorkers) -> Places:
        return dict.fromkeys(named.everywhere, "")

    def check(self, addresses: Iterable[Address]) -> None:
        require_security(addresses, self._security)
