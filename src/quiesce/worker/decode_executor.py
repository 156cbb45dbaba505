"""What decode's executors share: the effects that mean the same whether pages are written here or read from here."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable
from typing import assert_never

from quiesce.ids import Attempt, PageTag, Peer
from quiesce.protocol.messages import Abort, Envelope, Failure, Fault
from quiesce.protocol.receiver_io import (
    Attach,
    Cache,
    DecodeEffect,
    Hold,
    Ignored,
    Minted,
    Proof,
    Quarantine,
    Release,
    RequestFailed,
    Send,
    StartTimer,
    StopTimers,
    Timer,
    TimerFired,
    Verified,
    Verify,
)
from quiesce.telemetry.logs import ids
from quiesce.telemetry.metrics import Telemetry
from quiesce.worker.handoff import Handoff
from quiesce.worker.intake import IntakeHost
from quiesce.worker.landing import Landing
from quiesce.worker.settings import WorkerSettings
from quiesce.worker.timers import Timers, backoff_s

log = logging.getLogger(__name__)

NO_DIGEST = Failure("digest_mismatch", "Prefill sent no payload digest although it must.", Fault.PREFILL)
NO_SUCH_TOKEN = Failure("invalid_token_id", "Prefill's first token is not in the model's vocabulary.", Fault.PREFILL)


class DecodeExecutor(abc.ABC):
    """Every branch does what its effect says, in the machine's order, and no more."""

    def __init__(
        self, host: IntakeHost, settings: WorkerSettings, landing: Landing, telemetry: Telemetry, vocab_size: int
    ) -> None:
        self._host = host
        self._settings = settings
        self._landing = landing
        self._telemetry = telemetry
        self._vocab_size = vocab_size
        self._timers = Timers()

    def carry_out_shared(self, effect: DecodeEffect) -> None:  # noqa: C901 - one branch per effect, each a line
        match effect:
            case Minted(attempt, request):
                self._host.minted(attempt, request)
            case Send(envelope):
                self._send(envelope)
            case Verify():
                self._verify(effect)
            case Cache(attempt):
                self._host.cache(self._host.handoffs[attempt])
            case Attach(attempt):
                self._commit(self._host.handoffs[attempt])
                self._host.attach(effect)
            case RequestFailed(attempt, failure):
                self._host.handoff_failed(self._host.handoffs[attempt], failure)
            case Hold(attempt, awaiting):
                self._hold(attempt, awaiting)
            case Release(attempt, _, proof):
                self._release(attempt, proof)
            case Quarantine(attempt, awaiting):
                self._quarantine(attempt, awaiting)
            case StartTimer(attempt, timer, round_):
                self._timers.start(attempt, timer.value, self._delay_s(timer, round_), self._fire(attempt, timer))
            case StopTimers(attempt):
                self._timers.stop(attempt)
            case Ignored(kind, reason):
                self._telemetry.inc("quiesce_ignored_messages", kind=kind, reason=reason)
            case _:
                assert_never(effect)

    # ------------------------------------------------------------ messages and verification

    def _send(self, envelope: Envelope) -> None:
        if isinstance(envelope.body, Abort):
            self._count_abort(envelope)
        self._host.send(envelope)

    def _count_abort(self, envelope: Envelope) -> None:
        handoff = self._host.handoffs.get(envelope.attempt)
        again = handoff is None or envelope.to in handoff.told
        self._telemetry.inc("quiesce_aborts_resent" if again else "quiesce_aborts_sent")
        if handoff is not None:
            handoff.told.add(envelope.to)

    def _verify(self, verify: Verify) -> None:
        """Ask the memory itself (rule 11): tags of every page, the metadata slot, the digest when enabled."""
        handoff = self._host.handoffs[verify.attempt]
        if failure := self._check_told(verify):
            self._verified(verify.attempt, handoff, failure)
        else:
            self._landing.verify(handoff, verify, lambda found: self._verified(verify.attempt, handoff, found))

    def _verified(self, attempt: Attempt, handoff: Handoff, failure: Failure | None) -> None:
        if failure is not None:
            self._telemetry.inc("quiesce_tag_mismatches", where="commit")
            about = ids(request=handoff.request.id, attempt=attempt, code=failure.code, reason=failure.message)
            log.error("a hand-off did not verify", extra=about)
        self._host.feed(Verified(attempt, failure))

    def _check_told(self, verify: Verify) -> Failure | None:
        """What DONE said must make sense before memory is compared with it."""
        if self._settings.digest != "off" and not verify.payload_digest:
            return NO_DIGEST
        return None if 0 <= verify.first_token < self._vocab_size else NO_SUCH_TOKEN

    def _commit(self, handoff: Handoff) -> None:
        self._lease_over(handoff.commit())
        self._landing.commit(handoff)

    # ------------------------------------------------------------ holds

    def _hold(self, attempt: Attempt, awaiting: tuple[Peer, ...]) -> None:
        """Arm the hold."""
        handoff = self._host.handoffs[attempt]
        handoff.hold(awaiting)
        self._landing.hold(handoff)
        about = ids(request=handoff.request.id, attempt=attempt, pages=len(handoff.lease.pages))
        log.info("holding until %s is proved drained or fenced", _names(awaiting), extra=about)
        self._held(attempt, handoff, awaiting)

    @abc.abstractmethod
    def _held(self, attempt: Attempt, handoff: Handoff, awaiting: tuple[Peer, ...]) -> None:
        """The hold is armed: say what is proved at once."""

    @abc.abstractmethod
    def _lease_over(self, tag: PageTag) -> None:
        """Nobody may reach the lease's pages any more."""

    def _quarantine(self, attempt: Attempt, awaiting: tuple[Peer, ...]) -> None:
        handoff = self._host.handoffs[attempt]
        handoff.state, handoff.awaiting = "quarantined", awaiting
        self._landing.quarantine(handoff)
        self._telemetry.inc("quiesce_quarantined_attempts")
        self._host.pool_changed()
        about = ids(request=handoff.request.id, attempt=attempt, pages=len(handoff.lease.pages))
        log.warning("quarantined until %s is proved drained or fenced", _names(awaiting), extra=about)

    def _release(self, attempt: Attempt, proof: Proof) -> None:
        """The one place where a lease's pages and seat come back (rule 15)."""
        handoff = self._host.handoffs.pop(attempt)
        self._lease_over(handoff.lease.tag)
        self._landing.release(handoff)
        if handoff.held_s is not None:
            about = ids(request=handoff.request.id, attempt=attempt, proof=proof, seconds=round(handoff.held_s, 6))
            log.info("released", extra=about)
            since_s = time.monotonic() - handoff.held_s
            told = {"attempt": attempt, "proof": proof.value, "pages": len(handoff.lease.pages)}
            self._telemetry.spans.record(handoff.request.id, "hold", since_s, **told)
            self._telemetry.inc("quiesce_releases", proof=proof.value)
            self._telemetry.observe("quiesce_hold_seconds", handoff.held_s)
            self._telemetry.inc("quiesce_held_page_seconds", handoff.charge())
            if proof is Proof.DRAINED:
                self._telemetry.observe("quiesce_abort_propagation_seconds", handoff.held_s)
        if proof is Proof.TIMEOUT:
            self._telemetry.inc("quiesce_unsafe_releases")
            about = ids(request=handoff.request.id, attempt=attempt)
            log.error("pages freed WITHOUT PROOF (--unsafe-release-on-timeout)", extra=about)
        self._host.pool_changed()

    # ------------------------------------------------------------ clocks

    def _delay_s(self, timer: Timer, round_: int) -> float:
        match timer:
            case Timer.HANDOFF:
                return self._settings.handoff_timeout_s
            case Timer.HOLD:
                return self._settings.hold_deadline_s
            case Timer.RESEND:
                return backoff_s(self._settings.resend_s, round_)

    def _fire(self, attempt: Attempt, timer: Timer) -> Callable[[], None]:
        return lambda: self._host.feed(TimerFired(attempt, timer))

    def close(self) -> None:
        self._timers.stop_all()


def _names(peers: tuple[Peer, ...]) -> str:
    return ", ".join(str(peer) for peer in peers) or "nobody"
