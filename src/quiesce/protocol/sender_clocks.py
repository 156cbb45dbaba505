"""Clocks at prefill, in push and in pull alike: they escalate, they never free (PROTOCOL section 3)."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.ids import AttemptKey, RequestId
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.messages import Failure, Fault, Progress
from quiesce.protocol.reasons import Reason
from quiesce.protocol.record import Meeting, RecordPhase, RequestPhase
from quiesce.protocol.sender_ends import fail_request, refuse
from quiesce.protocol.sender_io import SenderTimer, SenderTimerFired, StartSenderTimer
from quiesce.protocol.sender_turn import SenderTurn

NO_REQUEST = Failure("handoff_timeout", "The request for this destination did not come in time.", Fault.ROUTER, 504)
NO_PUBLISH = Failure("no_lease", "Decode had no room for this request in time. Nothing was begun.", Fault.DECODE, 503)
NOT_READ = Failure("handoff_timeout", "Decode did not say in time that it read the prompt's pages.", Fault.DECODE, 504)


def expire(turn: SenderTurn, fact: SenderTimerFired) -> None:
    match fact.timer, fact.subject:
        case SenderTimer.ORPHAN, AttemptKey() as key:
            _orphaned(turn, key)
        case SenderTimer.RESEND, AttemptKey() as key:
            _resend(turn, key)
        case SenderTimer.PROGRESS, AttemptKey() as key:
            _tell_progress(turn, key)
        case SenderTimer.LENT, AttemptKey() as key:
            _lent_too_long(turn, key)
        case SenderTimer.REQUEST, str(request):
            _unpublished(turn, RequestId(request))
        case SenderTimer.FORGET, (room, digest):
            _forget(turn, (room, digest))
        case _:
            turn.ignore(f"timer_{fact.timer}", Reason.UNKNOWN)


def _orphaned(turn: SenderTurn, key: AttemptKey) -> None:
    """Rule 17: a PUBLISH without its request."""
    record = turn.record(key)
    if record is None or record.phase is not RecordPhase.ANNOUNCED:
        turn.ignore("timer_orphan", Reason.LATE)
    else:
        refuse(turn, record, NO_REQUEST)


def _tell_progress(turn: SenderTurn, key: AttemptKey) -> None:
    """Decode gives up on whoever is silent (rule 17)."""
    record = turn.record(key)
    if record is None or not rules.is_at_work(record):
        turn.ignore("timer_progress", Reason.LATE)
    else:
        turn.reply(key, Progress())
        turn.emit(StartSenderTimer(key, SenderTimer.PROGRESS))


def _lent_too_long(turn: SenderTurn, key: AttemptKey) -> None:
    """Rule 17: an OFFER that nobody answers. The clock escalates; it takes nothing back."""
    record = turn.record(key)
    if record is None or record.phase is not RecordPhase.OFFERED:
        turn.ignore("timer_lent", Reason.LATE)
    else:
        fail_request(turn, turn.request(record.request), NOT_READ)


def _unpublished(turn: SenderTurn, request: RequestId) -> None:
    """Rule 17: a request without its PUBLISH."""
    waiting = turn.request(request)
    if waiting is None or waiting.phase is not RequestPhase.WAITING:
        turn.ignore("timer_request", Reason.LATE)
    else:
        fail_request(turn, waiting, NO_PUBLISH)


def _forget(turn: SenderTurn, meeting: Meeting) -> None:
    if meeting in turn.state.given_up:
        turn.state = replace(turn.state, given_up=turn.state.given_up.delete(meeting))
    else:
        turn.ignore("timer_forget", Reason.LATE)


def _resend(turn: SenderTurn, key: AttemptKey) -> None:
    """DONE or OFFER until it is answered, FAIL{poisoned} until FENCED, ABORT of what is lent; else no clock again."""
    record = turn.record(key)
    body = None if record is None else rules.to_repeat(record)
    if record is None or body is None:
        turn.ignore("timer_resend", Reason.LATE)
        return
    later = min(record.resend_round + 1, rules.MAX_RESEND_ROUND)
    turn.put(replace(record, resend_round=later))
    turn.reply(key, body)
    turn.emit(StartSenderTimer(key, SenderTimer.RESEND, later))
