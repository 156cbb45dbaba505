"""The receiver machine: decode's half of every hand-off of one worker (PROTOCOL section 4).

`step(state, fact) -> (state', effects)`. Facts and effects are in `receiver_io`; what is decided, and by which rule,
is in `receiver_rules`; this module says what follows, and in which order.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from quiesce.ids import Incarnation
from quiesce.protocol import receiver_rules as rules
from quiesce.protocol.attempt import AttemptState, Destination, Phase, ReceiverState
from quiesce.protocol.decode_steps import TOO_LATE, abandon, bound, finish, hear, lose, mint, progressed, verified
from quiesce.protocol.decode_turn import ReceiverTurn
from quiesce.protocol.messages import (
    Abort,
    AbortAck,
    Body,
    Bound,
    Committed,
    Done,
    Envelope,
    Fail,
    Failure,
    Fault,
    Fenced,
    Progress,
)
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.receiver_holds import acked, fail, fence, hold_expired, settle
from quiesce.protocol.receiver_io import (
    Abandon,
    FenceProved,
    Finished,
    PeerReplaced,
    Received,
    ReceiverEffect,
    ReceiverInput,
    Reserve,
    StartTimer,
    StreamLost,
    Timer,
    TimerFired,
    Verified,
    Verify,
)


def start(incarnation: Incarnation, ranks: int = 1, *, unsafe_release_on_timeout: bool = False) -> ReceiverState:
    """A worker's first state. `unsafe_release_on_timeout` makes an expired hold give pages away without a proof."""
    return ReceiverState(incarnation, ranks, unsafe_release_on_timeout)


def step(state: ReceiverState, fact: ReceiverInput) -> tuple[ReceiverState, tuple[ReceiverEffect, ...]]:
    """The next state and what to do, in that order. Raises InvariantBroken if the executor broke its contract."""
    turn = ReceiverTurn(state)
    match fact:
        case Reserve():
            _reserve(turn, fact)
        case Received(envelope=envelope):
            hear(turn, envelope, _receive_about_nothing, _receive_granted)
        case Verified():
            verified(turn, fact, fail)
        case Abandon():
            abandon(turn, fact, fail)
        case StreamLost() | PeerReplaced():
            lose(turn, fact, fail)
        case FenceProved():
            fence(turn, fact)
        case TimerFired():
            _expire(turn, fact)
        case Finished(attempt=number):
            finish(turn, number, settle)
        case _:  # pragma: no cover
            assert_never(fact)
    return turn.state, tuple(turn.effects)


# ---------------------------------------------------------------- the way to a commit


def _reserve(turn: ReceiverTurn, fact: Reserve) -> None:
    attempt = mint(turn, AttemptState, fact)
    turn.publish(attempt, rules.to_publish(attempt))
    turn.emit(StartTimer(attempt.attempt, Timer.RESEND))


def _receive_about_nothing(turn: ReceiverTurn, envelope: Envelope) -> None:
    """An attempt that is over, or was never minted. Over means proved: COMMITTED and FENCED are true answers."""
    there = [Destination(envelope.to.rank, envelope.sender)]
    match envelope.body:
        case _ if not rules.is_minted(turn.state, envelope.attempt):
            turn.ignore(kind_of(envelope.body), Reason.EARLY)
        case Done():
            turn.send(envelope.attempt, there, Committed())
        case Fail(poisoned=True):
            turn.send(envelope.attempt, there, Fenced())
        case _:
            turn.ignore(kind_of(envelope.body), Reason.LATE)


def _receive_granted(turn: ReceiverTurn, attempt: AttemptState, there: Destination, body: Body) -> None:
    match body:
        case Bound():
            bound(turn, attempt, there)
        case Progress():
            progressed(turn, attempt, there)
        case Done():
            _done(turn, attempt, there, body)
        case Fail():
            _failed_there(turn, attempt, there, body)
        case AbortAck():
            acked(turn, attempt, there, body)
        case _:
            turn.ignore(kind_of(body), Reason.UNEXPECTED)


def _done(turn: ReceiverTurn, attempt: AttemptState, there: Destination, body: Done) -> None:
    if attempt.phase is Phase.COMMITTED:
        turn.send(attempt.attempt, [there], Committed())
    elif there in attempt.done:
        _done_again(turn, attempt, there)
    elif not rules.tells_own_content(attempt, body):
        _foreign_content(turn, attempt)
    else:
        _count_done(turn, replace(attempt, done=attempt.done.set(there, body)))


def _done_again(turn: ReceiverTurn, attempt: AttemptState, there: Destination) -> None:
    """A rank that goes on saying DONE of a failed attempt lost our ABORT; DONE was its proof, so no timer re-sends."""
    turn.ignore("done", Reason.DUPLICATE)
    if rules.is_held(attempt):
        turn.send(attempt.attempt, [there], Abort())


def _foreign_content(turn: ReceiverTurn, attempt: AttemptState) -> None:
    if rules.is_under_way(attempt):
        message = "Prefill finished another request's prompt, or its ranks disagree about what they wrote."
        fail(turn, attempt, Failure("content_mismatch", message, Fault.PREFILL))
    else:
        turn.ignore("done", Reason.FOREIGN)


def _count_done(turn: ReceiverTurn, attempt: AttemptState) -> None:
    turn.put(attempt)
    if rules.may_verify(attempt):
        told = next(iter(attempt.done.values()))
        turn.put(replace(attempt, phase=Phase.LANDED))
        turn.emit(Verify(attempt.attempt, told.first_token, told.payload_digest))
    elif rules.is_held(attempt):
        settle(turn, attempt)


# ---------------------------------------------------------------- every way to fail holds (rule 2)


def _failed_there(turn: ReceiverTurn, attempt: AttemptState, there: Destination, body: Fail) -> None:
    if rules.is_under_way(attempt):
        fail(turn, attempt, body.failure)
    elif body.poisoned and there in attempt.fenced:
        turn.send(attempt.attempt, [there], Fenced())
    else:
        turn.ignore("fail", Reason.LATE)


# ---------------------------------------------------------------- clocks: they escalate, they never free (section 3)


def _expire(turn: ReceiverTurn, fact: TimerFired) -> None:
    attempt = turn.state.attempts.get(fact.attempt)
    match fact.timer:
        case _ if attempt is None:
            turn.ignore(f"timer_{fact.timer}", Reason.LATE)
        case Timer.HANDOFF if rules.is_under_way(attempt):
            fail(turn, attempt, TOO_LATE)
        case Timer.HOLD if attempt.phase is Phase.HOLDING:
            hold_expired(turn, attempt)
        case Timer.RESEND:
            _resend(turn, attempt)
        case _:
            turn.ignore(f"timer_{fact.timer}", Reason.LATE)


def _resend(turn: ReceiverTurn, attempt: AttemptState) -> None:
    """PUBLISH until BOUND, ABORT until proved; nothing of either: the clock is not started again."""
    publish = rules.to_publish(attempt) if attempt.phase is Phase.PUBLISHED else ()
    abort = rules.unproved(attempt) if rules.is_held(attempt) else ()
    turn.publish(attempt, publish)
    turn.send(attempt.attempt, abort, Abort())
    if publish or abort:
        later = min(attempt.resend_round + 1, rules.MAX_RESEND_ROUND)
        turn.put(replace(attempt, resend_round=later))
        turn.emit(StartTimer(attempt.attempt, Timer.RESEND, later))


__all__ = ["ReceiverState", "start", "step"]
