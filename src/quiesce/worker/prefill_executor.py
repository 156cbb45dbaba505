"""What prefill's executors share: the effects that mean the same whether pages are written or lent."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import assert_never

from quiesce.protocol.sender_io import (
    CacheSource,
    PrefillDone,
    PrefillEffect,
    PrefillFailed,
    ReleaseSource,
    Reply,
    SenderIgnored,
    SenderTimer,
    SenderTimerFired,
    StartCompute,
    StartSenderTimer,
    StopCompute,
    StopSenderTimers,
)
from quiesce.telemetry.metrics import Telemetry
from quiesce.worker.outlet import OutletHost
from quiesce.worker.settings import WorkerSettings
from quiesce.worker.timers import Timers, backoff_s

PROGRESS_S = 1.0
PROGRESS_SHARE = 0.25
"""PROGRESS is said that often, and at least so many times before decode, with the same settings, would give up."""


class PrefillExecutor:
    """Every branch does what its effect says, in the machine's order, and no more."""

    def __init__(self, host: OutletHost, settings: WorkerSettings, telemetry: Telemetry) -> None:
        self._host = host
        self._settings = settings
        self._telemetry = telemetry
        self._timers = Timers()

    def carry_out_shared(self, effect: PrefillEffect) -> None:  # noqa: C901 - one branch per effect, each a line
        match effect:
            case Reply(envelope):
                self._host.send(envelope)
            case StartCompute(request, held_tokens):
                self._host.start_compute(self._host.jobs[request], held_tokens)
            case StopCompute(request):
                self._host.jobs[request].stop()
            case ReleaseSource(request, proof):
                self._host.free_source(self._host.jobs[request], proof)
            case PrefillFailed(request, failure):
                self._host.request_failed(request, failure)
            case CacheSource(request):
                self._host.cache_source(self._host.jobs[request])
            case PrefillDone(request):
                self._host.request_done(request)
            case StartSenderTimer(subject, timer, round_):
                self._timers.start(subject, timer.value, self._delay_s(timer, round_), self._fire(subject, timer))
            case StopSenderTimers(subject):
                self._timers.stop(subject)
            case SenderIgnored(kind, reason):
                self._telemetry.inc("quiesce_ignored_messages", kind=kind, reason=reason)
            case _:
                assert_never(effect)

    def _fire(self, subject: Hashable, timer: SenderTimer) -> Callable[[], None]:
        return lambda: self._host.feed(SenderTimerFired(subject, timer))  # type: ignore[arg-type]  # as it was started

    def _delay_s(self, timer: SenderTimer, round_: int) -> float:
        match timer:
            case SenderTimer.RESEND:
                return backoff_s(self._settings.resend_s, round_)
            case SenderTimer.PROGRESS:
                return min(PROGRESS_S, PROGRESS_SHARE * self._settings.handoff_timeout_s)
            case _:
                return self._settings.handoff_timeout_s

    def close(self) -> None:
        self._timers.stop_all()
