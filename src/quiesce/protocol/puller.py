"""The puller machine: decode's half of every hand-off of one worker, where it reads what prefill lends (section 6).

`step(state, fact) -> (state', effects)`. Facts and effects are in `puller_io`; what is decided, and by which rule, is
in `puller_rules` and `receiver_rules`; what is the same in push is in `decode_steps`, reads are in `puller_reads` and
every way to fail is in `puller_holds`.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from quiesce.ids import Incarnation
from quiesce.protocol import puller_rules, receiver_rules
from quiesce.protocol.attempt import Destination, Phase, PullerState, PullState
from quiesce.protocol.decode_steps import TOO_LATE, abandon, bound, finish, hear, lose, mint, progressed, verified
from quiesce.protocol.decode_turn import PullerTurn
from quiesce.protocol.messages import (
    Abort,
    Ask,
    Body,
    Bound,
    Envelope,
    Fail,
    Failure,
    Fault,
    Fenced,
    Offer,
    Progress,
)
from quiesce.protocol.puller_holds import answer, close, fail, hold_expired, settle
from quiesce.protocol.puller_io import EndpointClosed, PullerEffect, PullerInput, ReadSettled
from quiesce.protocol.puller_reads import begin, read_settled
from quiesce.protocol.reasons import Reason, kind_of
from quiesce.protocol.receiver_io import (
    Abandon,
    Finished,
    PeerReplaced,
    Received,
    Reserve,
    StartTimer,
    StreamLost,
    Timer,
    TimerFired,
    Verified,
)

ABORTED_THERE = Failure("aborted", "Prefill ended the hand-off.", Fault.PREFILL, 503)
FOREIGN = Failure("content_mismatch", "Prefill offers another prompt's pages, or its ranks disagree.", Fault.PREFILL)


def start(
    incarnation: Incarnation,
    ranks: int = 1,
    *,
    unsafe_release_on_timeout: bool = False,
    window: int = 2,
    batch_pages: int = 0,
) -> PullerState:
    """A worker's first state.

    At most `window` reads of at most `batch_pages` pages (0 = a whole lease) from one rank into one lease are
    outstanding. `unsafe_release_on_timeout` makes an expired hold give pages away without a proof.
    """
    return PullerState(incarnation, ranks, unsafe_release_on_timeout, window=window, batch_pages=batch_pages)


def step(state: PullerState, fact: PullerInput) -> tuple[PullerState, tuple[PullerEffect, ...]]:
    """The next state and what to do, in that order. Raises InvariantBroken if the executor broke its contract."""
    turn = PullerTurn(state)
    match fact:
        case Reserve():
            _reserve(turn, fact)
        case Received(envelope=envelope):
            hear(turn, envelope, _receive_about_nothing, _receive_granted)
        case ReadSettled():
            read_settled(turn, fact)
        case Verified():
            verified(turn, fact, fail)
        case Abandon():
            abandon(turn, fact, fail)
        case StreamLost() | PeerReplaced():
            lose(turn, fact, fail)
        case EndpointClosed():
            close(turn)
        case TimerFired():
            _expire(turn, fact)
        case Finished(attempt=number):
            finish(turn, number, settle)
        case _:  # pragma: no cover
            assert_never(fact)
    return turn.state, tuple(turn.effects)


# ---------------------------------------------------------------- the way to a commit


def _reserve(turn: PullerTurn, fact: Reserve) -> None:
    attempt = mint(turn, PullState, fact)
    _ask(turn, attempt)
    turn.emit(StartTimer(attempt.attempt, Timer.RESEND))


def _ask(turn: PullerTurn, attempt: PullState) -> bool:
    """ASK those who have not answered. False when all have."""
    missing = receiver_rules.to_publish(attempt)
    body = Ask(attempt.room, attempt.digest, attempt.prompt_tokens, attempt.held_tokens)
    turn.send(attempt.attempt, missing, body)
    return bool(missing)


def _receive_about_nothing(turn: PullerTurn, envelope: Envelope) -> None:
    """An attempt that is over, or was never minted. Over means proved: FENCED is a true answer."""
    match envelope.body:
        case _ if not receiver_rules.is_minted(turn.state, envelope.attempt):
            turn.ignore(kind_of(envelope.body), Reason.EARLY)
        case Offer() | Abort():
            turn.send(envelope.attempt, [Destination(envelope.to.rank, envelope.sender)], Fenced())
        case _:
            turn.ignore(kind_of(envelope.body), Reason.LATE)


def _receive_granted(turn: PullerTurn, attempt: PullState, there: Destination, body: Body) -> None:
    match body:
        case Bound():
            bound(turn, attempt, there)
        case Progress():
            progressed(turn, attempt, there)
        case Offer():
            _offered(turn, attempt, there, body)
        case Fail(failure=failure):
            _ended_there(turn, attempt, there, body, failure)
        case Abort():
            _ended_there(turn, attempt, there, body, ABORTED_THERE)
        case _:
            turn.ignore(kind_of(body), Reason.UNEXPECTED)


def _offered(turn: PullerTurn, attempt: PullState, there: Destination, body: Offer) -> None:
    """A rank that goes on offering lost our answer: whether it is read, was read, or will never be."""
    if not receiver_rules.is_under_way(attempt):
        answer(turn, attempt, there, body)
    elif there in attempt.offers:
        turn.ignore("offer", Reason.DUPLICATE)
    elif receiver_rules.tells_own_content(attempt, body) and puller_rules.fits(attempt, there, body):
        begin(turn, attempt, there, body)
    else:
        fail(turn, attempt, FOREIGN)


def _ended_there(turn: PullerTurn, attempt: PullState, there: Destination, body: Body, failure: Failure) -> None:
    """Whatever prefill did with its window: these pages are decode's to prove."""
    if receiver_rules.is_under_way(attempt):
        fail(turn, attempt, failure)
    else:
        answer(turn, attempt, there, body)


# ---------------------------------------------------------------- every way to fail holds (rule 2)


# ---------------------------------------------------------------- clocks: they escalate, they never free (section 3)


def _expire(turn: PullerTurn, fact: TimerFired) -> None:
    attempt = turn.state.attempts.get(fact.attempt)
    match fact.timer:
        case Timer.HANDOFF if attempt is not None and receiver_rules.is_under_way(attempt):
            fail(turn, attempt, TOO_LATE)
        case Timer.HOLD if attempt is not None and attempt.phase is Phase.HOLDING:
            hold_expired(turn, attempt)
        case Timer.RESEND if attempt is not None and attempt.phase is Phase.PUBLISHED:
            _ask_again(turn, attempt)
        case _:
            turn.ignore(f"timer_{fact.timer}", Reason.LATE)


def _ask_again(turn: PullerTurn, attempt: PullState) -> None:
    """ASK until BOUND, to the same life; what was asked of all is not said again."""
    if _ask(turn, attempt):
        later = min(attempt.resend_round + 1, receiver_rules.MAX_RESEND_ROUND)
        turn.put(replace(attempt, resend_round=later))
        turn.emit(StartTimer(attempt.attempt, Timer.RESEND, later))


__all__ = ["PullerState", "start", "step"]
