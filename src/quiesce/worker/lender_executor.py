"""Carries out the lender machine's effects on source pages, their windows and the streams of prefill."""

from __future__ import annotations

import logging
import time
from functools import partial

import msgspec

from quiesce.errors import invariant
from quiesce.ids import AttemptKey
from quiesce.protocol.lender_io import Lend, LenderEffect, Revoke, Revoked, TakeBack
from quiesce.telemetry.logs import ids
from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.pulling import Lender
from quiesce.worker.job import Job
from quiesce.worker.outlet import OutletHost
from quiesce.worker.prefill_executor import PrefillExecutor
from quiesce.worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class _Window(msgspec.Struct, frozen=True):
    """An open window: whose pages it shows, how many, and since when."""

    job: Job
    pages: int
    since_s: float


class LenderExecutor(PrefillExecutor):
    """One per prefill worker that lends."""

    def __init__(self, host: OutletHost, settings: WorkerSettings, transport: Lender, telemetry: Telemetry) -> None:
        super().__init__(host, settings, telemetry)
        self._transport = transport
        self._windows: dict[AttemptKey, _Window] = {}

    def carry_out(self, effect: LenderEffect) -> None:
        match effect:
            case Lend():
                self._lend(effect)
            case Revoke():
                self._revoke(effect)
            case TakeBack():
                self._take_back(effect)
            case _:
                self.carry_out_shared(effect)

    def _lend(self, lend: Lend) -> None:
        job = self._host.jobs[lend.request]
        pages = None if job.prompt is None else job.prompt.pages_to_send
        invariant(pages is not None and len(pages) == lend.lease.pages, "lent_as_computed", str(lend.key))
        if pages is not None:
            self._transport.lend(lend.lease.tag, pages)
            self._windows[lend.key] = _Window(job, len(pages), time.monotonic())
            job.lend(lend.key)

    def _revoke(self, revoke: Revoke) -> None:
        """Where the backend can, a fact at once. Where it cannot, decode's word or its death is awaited."""
        if self._transport.revoke(revoke.lease.tag):
            self._host.feed(Revoked(revoke.key))
        else:
            about = ids(attempt=revoke.key.attempt, peer=revoke.key.decode, pages=revoke.lease.pages)
            log.info("holding until decode says that it reads no more", extra=about)
            late = partial(self._quarantine, revoke.key)
            self._timers.start(_clock_of(revoke.key), "hold", self._settings.hold_deadline_s, late)

    def _quarantine(self, key: AttemptKey) -> None:
        """No proof came in time: out of circulation, counted, until one comes or this life ends."""
        self._host.source_poisoned(key)
        self._telemetry.inc("quiesce_quarantined_attempts")
        about = ids(attempt=key.attempt, peer=key.decode, pages=self._windows[key].pages)
        log.warning("quarantined until decode says that it reads no more", extra=about)

    def _take_back(self, back: TakeBack) -> None:
        self._transport.take_back(back.lease.tag)
        self._timers.stop(_clock_of(back.key))
        window = self._windows.pop(back.key)
        window.job.take_back(back.key)
        about = {"attempt": back.key.attempt, "pages": window.pages}
        self._telemetry.spans.record(window.job.request.id, "lent", window.since_s, **about)


def _clock_of(key: AttemptKey) -> tuple[str, AttemptKey]:
    """A subject of its own: the machine's clocks of the attempt stop without this one."""
    return "window", key
