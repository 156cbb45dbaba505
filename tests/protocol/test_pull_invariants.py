"""What must hold where decode reads: each invariant sees what it is there for, and nothing in what is right."""

from __future__ import annotations

from quiesce.ids import AttemptKey, Peer
from quiesce.protocol import pull_invariants
from quiesce.protocol.attempt import PullerState
from quiesce.protocol.invariants import Broken, Flight
from quiesce.protocol.lender_io import LenderInput, ReaderDead
from quiesce.protocol.messages import Abort, AbortAck, Committed, Fail, Fenced
from quiesce.protocol.puller_io import EndpointClosed, PullerInput, ReadSettled
from quiesce.protocol.receiver_io import Abandon, Timer, TimerFired, Verified
from quiesce.protocol.sender_io import Arrived, DecodeReplaced, Ended, Outcome, SenderTimer, SenderTimerFired
from tests.protocol.scene import (
    BROKEN,
    D0,
    DIGEST,
    GONE,
    KEY,
    ONE,
    P0,
    RID,
    ROOM,
    ask,
    from_decode,
    from_prefill,
    lender_runs,
    lent,
    offer,
    puller_runs,
    reserve,
)

READ = Flight(P0, KEY, 1, RID)
READING: tuple[PullerInput, ...] = (reserve(), from_prefill(offer()))
LENT: tuple[LenderInput, ...] = (Arrived(RID, ROOM, DIGEST), from_decode(ask()), lent())
POISONED = (*READING, ReadSettled(ONE, 1, Outcome.FAILED_IN_FLIGHT), TimerFired(ONE, Timer.HOLD))
FAILED = (*LENT, from_decode(Fail(BROKEN)))


def leaks(
    decode: tuple[PullerInput, ...],
    prefill: tuple[LenderInput, ...],
    *,
    can_revoke: bool = False,
    deaths_are_known: bool = False,
    next_life: bool = False,
) -> Broken:
    puller, lender = puller_runs(*decode)[0], lender_runs(*prefill)[0]
    if next_life:
        puller = type(puller)(P0.incarnation, 1)
    return pull_invariants.no_leak(puller, [lender], can_revoke=can_revoke, deaths_are_known=deaths_are_known)


def test_what_decode_says_of_reads_under_way() -> None:
    said = [from_decode(body).envelope for body in (AbortAck(), Committed(), Fenced())]
    assert len(pull_invariants.no_early_ack([READ], said)) == 3
    assert pull_invariants.no_early_ack([], said) == ()
    other = Flight(P0, AttemptKey(Peer(1, D0.incarnation), ONE), 1, RID)
    assert pull_invariants.no_early_ack([other], said) == ()
    assert (
        pull_invariants.no_early_ack([READ], [from_prefill(Abort()).envelope, from_decode(Fail(GONE)).envelope]) == ()
    )


def test_reads_of_unknown_fate_are_a_named_reason_at_decode() -> None:
    assert leaks(POISONED, ()) == ()
    assert leaks((*POISONED, EndpointClosed()), ()) == ()
    assert leaks((*READING, Abandon(ONE, GONE)), ())
    assert leaks(READING, ())
    assert leaks((*READING, ReadSettled(ONE, 1, Outcome.LANDED), Verified(ONE)), ())


def test_what_may_still_be_read_is_a_named_reason_at_prefill() -> None:
    assert leaks(POISONED, FAILED) == ()
    assert len(leaks(POISONED, FAILED, can_revoke=True)) == 2
    assert len(leaks((*POISONED, EndpointClosed()), FAILED)) == 2
    assert len(leaks(POISONED, LENT)) == 1, "OFFER is answered, whatever the answer is"
    assert leaks((), (*FAILED, from_decode(AbortAck()))) == ()
    assert len(leaks((), LENT[:2])) == 2
    assert len(leaks((), (*LENT[:1], SenderTimerFired(RID, SenderTimer.RESEND)))) == 1


def test_a_reader_that_is_gone_is_a_named_reason_while_nobody_knows() -> None:
    gone = (*LENT, DecodeReplaced(D0))
    assert leaks((), gone, next_life=True) == ()
    assert len(leaks((), gone, next_life=True, deaths_are_known=True)) == 2
    assert leaks((), (*gone, ReaderDead(D0)), next_life=True, deaths_are_known=True) == ()
    assert leaks(READING[:1], gone, deaths_are_known=True)[-1:] != (), "decode's own attempt is under way"
    assert leaks((), gone, deaths_are_known=True) == (), "it lives, and prefill refuses it"


def test_a_loan_that_failed_here_is_answered() -> None:
    assert len(leaks((), (*LENT, Ended(RID, GONE)))) == 2


def test_another_life_that_goes_on_names_what_it_may_still_read() -> None:
    """Where deaths are not known, it is not one of the gone."""
    one, lender = type(puller_runs()[0])(P0.incarnation, 1), lender_runs(*FAILED)[0]

    def left(*others: PullerState) -> Broken:
        return pull_invariants.no_leak(one, [lender], can_revoke=False, deaths_are_known=False, others=others)

    assert left() == (), "its reader is gone, for all that is known"
    assert left(puller_runs(*POISONED)[0]) == ()
    assert len(left(puller_runs()[0])) == 2
