"""How a decode worker learns of prefill workers while it runs."""

from __future__ import annotations

from collections.abc import Iterable

from quiesce.control.address import Address
from quiesce.control.discovery import follow
from quiesce.control.security import Security
from quiesce.control.whereabouts import Places, Whereabouts
from quiesce.control.workers_file import NamedWorkers
from quiesce.worker.peers import parse_peers, peers_of, places_of
from quiesce.worker.prefill_streams import PrefillStreams
from quiesce.worker.process import Parts
from quiesce.worker.reach import check_addresses
from quiesce.worker.settings import WorkerSettings


class _Rules:
    def __init__(self, settings: WorkerSettings, security: Security) -> None:
        self._settings = settings
        self._security = security

    def of_file(self, named: NamedWorkers) -> Places:
        return places_of(peers_of(self._settings, named))

    def check(self, addresses: Iterable[Address]) -> None:
        check_addresses(self._settings, self._security, addresses)


async def follow_peers(parts: Parts, streams: PrefillStreams) -> None:
    """Let the streams lead to whom settings, file and DNS name, for as long as that can change."""
    settings = parts.settings
    where = Whereabouts(streams.expect)
    where.say("--peer", places_of(parse_peers(settings.peer)))
    await follow(settings, where, _Rules(settings, parts.security))
