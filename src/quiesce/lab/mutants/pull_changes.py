"""The puller and lender machines with one rule left out of one function."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from quiesce.ids import AttemptKey
from quiesce.protocol import lender, lender_windows, puller, puller_holds, puller_reads, puller_rules, sender_losses
from quiesce.protocol.attempt import Phase, PullState
from quiesce.protocol.messages import Offer
from quiesce.protocol.receiver_io import Proof, Release, RequestFailed, StopTimers
from quiesce.protocol.record import RecordPhase, RequestPhase
from quiesce.protocol.sender_ends import fail_request
from quiesce.protocol.sender_io import CacheSource, DecodeReplaced, Reply, StartSenderTimer

honest_fail = puller_holds.fail


def free_without_hold(code: str) -> Any:
    """Rule 2: failing for this reason gives the pages back at once."""

    def fail(turn: Any, attempt: PullState, failure: Any) -> None:
        if failure.code == code:
            release_at_once(turn, attempt, failure)
        else:
            honest_fail(turn, attempt, failure)

    return fail


def release_at_once(turn: Any, attempt: PullState, failure: Any) -> None:
    turn.emit(StopTimers(attempt.attempt), RequestFailed(attempt.attempt, failure))
    turn.emit(*(Release(attempt.attempt, rank, Proof.DRAINED) for rank in range(len(attempt.leases))))
    turn.forget(attempt.attempt)


def prefills_word_frees(turn: Any, attempt: PullState, there: Any, body: Any, failure: Any) -> None:
    """Section 6: that prefill ended it, and revoked its window, is taken for a proof at decode."""
    if attempt.phase in (Phase.PUBLISHED, Phase.LANDED):
        release_at_once(turn, attempt, failure)
    else:
        honest_ended_there(turn, attempt, there, body, failure)


honest_ended_there = puller._ended_there


def said_before_held(turn: Any, attempt: PullState, failure: Any) -> None:
    honest_fail(turn, attempt, failure)
    turn.effects.sort(key=lambda effect: not hasattr(effect, "envelope"))


def idle_anywhere(attempt: PullState, rank: int) -> bool:
    return any(honest_is_idle(attempt, each) for each in range(len(attempt.leases)))


honest_is_idle = puller_rules.is_idle


def hold_and_go_on(turn: Any, attempt: PullState) -> PullState:
    """What waits for its turn stays in the queue of a failed attempt."""
    held = replace(honest_hold(turn, attempt), queued=attempt.queued)
    turn.put(held)
    return held


honest_hold = puller_holds._hold


def launch_after_all(state: Any, attempt: PullState, there: Any) -> bool:
    return bool(attempt.queued.get(there)) and there not in attempt.outstanding.values()


def settle_and_go_on(turn: Any, attempt: PullState) -> None:
    for there in sorted(attempt.queued):
        attempt = puller_reads._launch(turn, attempt, there)
    honest_settle(turn, attempt)


honest_settle = puller_holds.settle


def verify_first(attempt: PullState) -> bool:
    return attempt.phase is Phase.PUBLISHED and bool(attempt.offers)


def count_as_read(turn: Any, attempt: PullState, failure: Any) -> None:
    """A read that failed for good is counted like one that landed."""
    if failure is puller_reads.READ_FAILED:
        puller_reads._advance(turn, attempt, min(attempt.offers))
    else:
        honest_fail(turn, attempt, failure)


def ignore_what_is_over(turn: Any, envelope: Any) -> None:
    return


def clock_takes_back(turn: Any, key: AttemptKey) -> None:
    """Rule 13: a clock frees the lent pages."""
    record = turn.record(key)
    if record is not None and record.phase is RecordPhase.OFFERED:
        turn.put(lender_windows.stopped(lender_windows.take_back(turn, record), RecordPhase.ABORTED))
        fail_request(turn, turn.request(record.request), lender.WINDOW_CLOSED)


def replaced_is_dead(turn: Any, fact: Any) -> None:
    """Section 3: that another life took decode's place is taken for its death."""
    if isinstance(fact, DecodeReplaced):
        lender._reader_dead(turn, fact.old)
    else:
        honest_lose(turn, fact)


honest_lose = sender_losses.lose


def offer_first(turn: Any, request: Any, key: AttemptKey, lease: Any, fact: Any) -> None:
    honest_lend(turn, request, key, lease, fact)
    turn.effects.sort(key=lambda effect: not (isinstance(effect, Reply) and isinstance(effect.envelope.body, Offer)))


honest_lend = lender_windows.lend


def cache_when_computed(turn: Any, fact: Any) -> None:
    honest_computed(turn, fact)
    request = turn.request(fact.request)
    if request is not None and request.phase is RequestPhase.LENT:
        turn.emit(CacheSource(fact.request))


honest_computed = lender._computed


def cache_when_returned(turn: Any, key: AttemptKey) -> None:
    """An acked loan is cached like a committed one."""
    record = turn.record(key)
    if record is not None and record.phase is RecordPhase.OFFERED:
        turn.emit(CacheSource(record.request))
    honest_acked(turn, key)


honest_acked = lender._acked


def forget_when_acked(turn: Any, key: AttemptKey) -> None:
    honest_acked(turn, key)
    turn.drop(key)


def silent_about_loans(turn: Any, record: Any, failure: Any, *, is_heard: bool = True) -> Any:
    over = honest_withdraw(turn, record, failure, is_heard=is_heard)
    turn.effects = [each for each in turn.effects if not isinstance(each, StartSenderTimer)]
    return over


honest_withdraw = lender_windows.withdraw
