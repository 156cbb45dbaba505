"""The ports of all fronts: the first worker's, the second one's, and so on."""

from __future__ import annotations

import socket

import msgspec
from starlette.types import ASGIApp

from quiesce.errors import ConfigurationError
from quiesce.router.front.app import build_front
from quiesce.router.front.leg import Meetings
from quiesce.router.front.service import FrontService
from quiesce.router.link import WorkerLink
from quiesce.router.listening import MAX_PORT, bind
from quiesce.router.service import Service


class Front(msgspec.Struct, frozen=True):
    """One worker's port."""

    sock: socket.socket
    port: int
    app: ASGIApp


def open_fronts(service: Service, taken: int) -> list[Front]:
    """Bound sockets, one per worker; none without `fronts`. `taken` is the port of everybody else.

    Raises ConfigurationError: then none is open.
    """
    socks: list[socket.socket] = []
    try:
        return _open(service, taken, socks)
    except ConfigurationError:
        for sock in socks:
            sock.close()
        raise


def _open(service: Service, taken: int, socks: list[socket.socket]) -> list[Front]:
    settings, links = service.settings, service.fleet.links
    if settings.fronts is None:
        return []
    last = settings.fronts + len(links) - 1
    if last > MAX_PORT:
        raise ConfigurationError([f"--fronts {settings.fronts}: there is no port {last}; begin lower"])
    for index, _ in enumerate(links):
        socks.append(bind(settings.front_host, settings.fronts + index if settings.fronts else 0))
    ports: dict[int, WorkerLink] = {sock.getsockname()[1]: link for sock, link in zip(socks, links, strict=True)}
    if taken in ports:
        # Which application answers is told by the port alone, whatever the address.
        raise ConfigurationError([f"--fronts: port {taken} is --port's; choose a range without it"])
    meetings = Meetings()
    return [
        Front(sock, port, build_front(FrontService.of(service, link, ports, meetings), settings.front_host, port))
        for sock, (port, link) in zip(socks, ports.items(), strict=True)
    ]
