"""How a decode worker learns of prefill workers while it runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from quiesce.control.address import Address
from quiesce.control.discovery import follow
from quiesce.control.security import Security
from quiesce.control.whereabouts import Places, Whereabouts
from quiesce.control.workers_file import NamedWorkers
from quiesce.errors import ConfigurationError
from quiesce.worker.parts import Parts
from quiesce.worker.peers import parse_peers, peers_of, places_of
from quiesce.worker.reach import check_addresses
from quiesce.worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class _Rules:
    def __init__(self, settings: WorkerSettings, security: Security) -> None:
        self._settings = settings
        self._security = security

    def of_file(self, named: NamedWorkers) -> Places:
        return places_of(peers_of(self._settings, named))

    def check(self, addresses: Iterable[Address]) -> None:
        check_addresses(self._settings, self._security, addresses)


async def follow_peers(parts: Parts, where: Whereabouts) -> None:
    """Tell `where` whom settings, file and DNS name, for as long as that can change."""
    settings = parts.settings
    where.say("--peer", places_of(parse_peers(settings.peer)))
    await follow(settings, where, _Rules(settings, parts.security))


def hear_of(parts: Parts, where: Whereabouts, router: str, places: Places) -> None:
    """A router that this worker is registered at says which prefill workers there are.

    Each said where it is by itself: one that cannot be reached from here is left out, and the others are taken.
    """
    where.say(f"--register {router}", {each: name for each, name in places.items() if _is_usable(parts, each, name)})


def _is_usable(parts: Parts, address: Address, name: str) -> bool:
    try:
        check_addresses(parts.settings, parts.security, [address])
    except ConfigurationError as error:
        what = "a router's prefill worker is not taken"
        parts.lines.say(log, logging.WARNING, what, f"not taken {name}", worker_name=name, reason=error)
        return False
    return True
