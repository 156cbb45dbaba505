"""Short checks of single rules that a world cannot see; each is a test, and kills mutants of its rule."""

from __future__ import annotations

import pytest

from quiesce.errors import RequestRejected
from quiesce.ids import Peer
from quiesce.protocol import admission, breaker, pairing, sender_clocks, sender_rules
from quiesce.protocol.attempt import Phase
from quiesce.protocol.messages import Abort, AbortAck, Fail, Failure, Fault, Progress
from quiesce.protocol.receiver_io import Abandon, Ignored, Proof, Release, Send, StartTimer, Timer, TimerFired
from quiesce.protocol.sender_io import (
    Arrived,
    ChunkComputed,
    Ended,
    Outcome,
    Refused,
    Reply,
    SenderInput,
    SenderTimer,
    SenderTimerFired,
    StartSenderTimer,
    StopSenderTimers,
    WriteSettled,
)
from tests.protocol.scene import (
    BROKEN,
    DIGEST,
    DONE,
    GONE,
    KEY,
    ONE,
    P0,
    P1,
    RID,
    ROOM,
    STRANGER,
    breaker_after,
    decode_runs,
    failure_of,
    from_decode,
    from_prefill,
    kinds,
    prefill_runs,
    publish,
    reserve,
)

LIMITS = admission.Limits(context_length=100, pool_tokens=80)


def hold_comes_first() -> None:
    """Rule 1: the hold and its clock exist before the first ABORT leaves."""
    _, effects = decode_runs(reserve(), Abandon(ONE, GONE))
    assert kinds(effects) == ["StopTimers", "Hold", "StartTimer", "Abort", "StartTimer", "RequestFailed"]


def early_ack_is_ignored() -> None:
    """Rule 1: an ack before the hold is no answer to our ABORT."""
    state, effects = decode_runs(reserve(), from_prefill(AbortAck()))
    assert effects == (Ignored("abort_ack", "early"),)
    state, _ = decode_runs(Abandon(ONE, GONE), state=state)
    assert state.attempts[ONE].phase is Phase.HOLDING


def honest_ack_only() -> None:
    """Rule 7: an ack that admits writes in flight is none."""
    state, effects = decode_runs(reserve(), Abandon(ONE, GONE), from_prefill(AbortAck(outstanding=1)))
    assert effects == (Ignored("abort_ack", "outstanding"),)
    assert ONE in state.attempts


def foreign_is_ignored() -> None:
    """Rule 7: a rank that was never granted the destination changes nothing."""
    _, effects = decode_runs(reserve(), Abandon(ONE, GONE), from_prefill(AbortAck(), sender=STRANGER))
    assert effects == (Ignored("abort_ack", "foreign"),)


def done_is_an_ack() -> None:
    """Rule 8: DONE of one rank and the ack of the other release a failed attempt."""
    _, effects = decode_runs(
        reserve(P0, P1), from_prefill(DONE), Abandon(ONE, GONE), from_prefill(AbortAck(), sender=P1)
    )
    assert Release(ONE, 0, Proof.DRAINED) in effects


def timeout_stays_open() -> None:
    """Rule 9: pages that a clock gave away leave the attempt open, until it is proved; nothing is released twice."""
    state, effects = decode_runs(
        reserve(), Abandon(ONE, GONE), TimerFired(ONE, Timer.HOLD), unsafe_release_on_timeout=True
    )
    assert Release(ONE, 0, Proof.TIMEOUT) in effects
    state, effects = decode_runs(TimerFired(ONE, Timer.RESEND), state=state)
    told = [each.envelope.open_attempts for each in effects if isinstance(each, Send)]
    assert [still.below for still in told if still is not None] == [(ONE,)]
    state, effects = decode_runs(from_prefill(AbortAck()), state=state)
    assert kinds(effects) == ["StopTimers"]
    assert not state.attempts


def late_done_is_answered() -> None:
    """COMMITTED is answered for any finished attempt of this life."""
    _, effects = decode_runs(reserve(), Abandon(ONE, GONE), from_prefill(AbortAck()), from_prefill(DONE))
    assert kinds(effects) == ["Committed"]


def earlier_lives_are_not_heard() -> None:
    """Section 2: what is for an earlier life of this worker is refused and counted."""
    _, effects = decode_runs(reserve(), from_prefill(Fail(BROKEN), to=Peer(0, STRANGER.incarnation)))
    assert effects == (Ignored("fail", "other_life"),)


def late_poison_is_answered() -> None:
    """FENCED is answered for any attempt that is over: over means proved."""
    _, effects = decode_runs(
        reserve(), Abandon(ONE, GONE), from_prefill(AbortAck()), from_prefill(Fail(BROKEN, poisoned=True))
    )
    assert kinds(effects) == ["Fenced"]


def silence_ends_a_handoff() -> None:
    """Rule 17: a PUBLISHed attempt, a PUBLISH without its request, and a request without its PUBLISH."""
    _, effects = decode_runs(reserve(), TimerFired(ONE, Timer.HANDOFF))
    assert "RequestFailed" in kinds(effects)
    _, effects = prefill_runs(from_decode(publish()), SenderTimerFired(KEY, SenderTimer.ORPHAN))
    assert "Fail" in kinds(effects)
    _, effects = prefill_runs(Arrived(RID, ROOM, DIGEST), SenderTimerFired(RID, SenderTimer.REQUEST))
    assert "PrefillFailed" in kinds(effects)


def a_source_is_cached_when_it_has_landed() -> None:
    """Rule 12 at prefill: not when it is computed."""
    begun = (Arrived(RID, ROOM, DIGEST), from_decode(publish()), ChunkComputed(RID, 0, 1, last=True, first_token=5))
    state, effects = prefill_runs(*begun)
    assert "CacheSource" not in kinds(effects)
    _, effects = prefill_runs(WriteSettled(KEY, 1, Outcome.LANDED), state=state)
    assert "CacheSource" in kinds(effects)


def failed_call_drops_queue() -> None:
    """Rule 4: a capped batch stops at its first failed call; what was launched still counts."""
    state, _ = prefill_runs(
        Arrived(RID, ROOM, DIGEST),
        from_decode(publish(pages=4)),
        ChunkComputed(RID, 0, 4, last=True, first_token=5),
        batch_pages=1,
    )
    state, effects = prefill_runs(WriteSettled(KEY, 1, Outcome.FAILED_QUIESCED), state=state)
    assert kinds(effects) == ["StopSenderTimers", "StopSenderTimers", "Fail", "PrefillFailed"]
    state, effects = prefill_runs(from_decode(Abort()), state=state)
    assert "AbortAck" not in kinds(effects)
    _, effects = prefill_runs(WriteSettled(KEY, 2, Outcome.LANDED), state=state)
    assert kinds(effects) == ["AbortAck", "ReleaseSource"]


def poisoned_is_never_acked() -> None:
    """Rule 5: neither at the ABORT before nor at the one after the write's unknown end."""
    sending = (Arrived(RID, ROOM, DIGEST), from_decode(publish()), ChunkComputed(RID, 0, 1, last=True, first_token=5))
    poison = WriteSettled(KEY, 1, Outcome.FAILED_IN_FLIGHT)
    for facts in (
        (from_decode(Abort()), poison),
        (poison, from_decode(Abort())),
        (poison, from_decode(Abort()), poison),
    ):
        state, _ = prefill_runs(*sending)
        for fact in facts:
            state, effects = prefill_runs(fact, state=state)
            assert "AbortAck" not in kinds(effects)
    state, _ = prefill_runs(*sending, from_decode(Abort()), poison)
    state, _ = prefill_runs(SenderTimerFired(KEY, SenderTimer.RESEND), state=state)
    record = state.records[KEY]
    assert record.poisoned
    assert not record.outstanding
    assert not sender_rules.may_ack(record)


def poison_is_repeated() -> None:
    """FAIL{poisoned} is re-sent until FENCED."""
    _, effects = prefill_runs(
        Arrived(RID, ROOM, DIGEST),
        from_decode(publish()),
        ChunkComputed(RID, 0, 1, last=True, first_token=5),
        WriteSettled(KEY, 1, Outcome.FAILED_IN_FLIGHT),
        SenderTimerFired(KEY, SenderTimer.RESEND),
    )
    assert kinds(effects) == ["Fail", "StartSenderTimer"]


def given_up_is_answered() -> None:
    """Rule 8: a PUBLISH for what the door refused, or what ended before, is answered FAIL at once."""
    for facts in ((Refused(ROOM, DIGEST, BROKEN),), (Arrived(RID, ROOM, DIGEST), Ended(RID, BROKEN))):
        _, effects = prefill_runs(*facts, from_decode(publish()))
        bodies = [each.envelope.body for each in effects if isinstance(each, Reply)]
        assert bodies == [Fail(BROKEN)]


def progress_begins_the_clock_anew() -> None:
    """Rule 17: a prompt may take as long as it takes while its rank says so; what is over has no such clock."""
    state, effects = decode_runs(reserve(), from_prefill(Progress()))
    assert effects == (StartTimer(ONE, Timer.HANDOFF),)
    state, effects = decode_runs(from_prefill(Progress()), state=state)
    assert effects == (StartTimer(ONE, Timer.HANDOFF),)
    _, effects = decode_runs(Abandon(ONE, GONE), from_prefill(Progress()), state=state)
    assert effects == (Ignored("progress", "late"),)


def a_frozen_rank_has_no_advocate() -> None:
    """Rule 17: the clock begins anew only when every rank that owes DONE was heard, each time."""
    said, other = from_prefill(Progress()), from_prefill(Progress(), sender=P1)
    state, effects = decode_runs(reserve(P0, P1), said, said)
    assert effects == ()
    for fact, begins in ((other, True), (other, False), (said, True), (said, False)):
        state, effects = decode_runs(fact, state=state)
        assert effects == ((StartTimer(ONE, Timer.HANDOFF),) if begins else ())
    _, effects = decode_runs(reserve(P0, P1), from_prefill(DONE, sender=P1), said)
    assert effects == (StartTimer(ONE, Timer.HANDOFF),)


def who_waits_for_its_turn_is_heard() -> None:
    """Rule 17: bound and not computed yet, and computed in part."""
    fired = SenderTimerFired(KEY, SenderTimer.PROGRESS)
    state, effects = prefill_runs(Arrived(RID, ROOM, DIGEST), from_decode(publish(pages=2)))
    assert StartSenderTimer(KEY, SenderTimer.PROGRESS) in effects
    for fact in (fired, ChunkComputed(RID, 0, 1), fired):
        state, effects = prefill_runs(fact, state=state)
    assert kinds(effects) == ["Progress", "StartSenderTimer"]
    _, effects = prefill_runs(Arrived(RID, ROOM, DIGEST), from_decode(publish()), fired)
    assert kinds(effects) == ["Progress", "StartSenderTimer"]


def what_ended_is_silent() -> None:
    """Rule 17: an attempt that failed, or that says DONE, has no such clock, and one that fires late says nothing."""
    fired = SenderTimerFired(KEY, SenderTimer.PROGRESS)
    begun = (Arrived(RID, ROOM, DIGEST), from_decode(publish()))
    last = ChunkComputed(RID, 0, 1, last=True, first_token=5)
    ends: tuple[tuple[SenderInput, ...], ...] = (
        (Ended(RID, GONE),),
        (from_decode(Abort()),),
        (from_decode(Fail(BROKEN)),),
        (last, WriteSettled(KEY, 1, Outcome.LANDED)),
        (last, WriteSettled(KEY, 1, Outcome.FAILED_IN_FLIGHT)),
    )
    for end in ends:
        state, effects = prefill_runs(*begun, *end)
        assert StopSenderTimers(KEY) in effects
        _, effects = prefill_runs(fired, state=state)
        assert kinds(effects) == ["SenderIgnored"]


def door_rejects() -> None:
    """Rule 10: prompt + max_tokens within context and pool."""
    with pytest.raises(RequestRejected, match="at most 80 tokens"):
        admission.admit_decode(70, 11, LIMITS)
    with pytest.raises(RequestRejected):
        admission.admit_decode(80, None, LIMITS)
    assert admission.admit_decode(70, 10, LIMITS) == 10


def door_clips() -> None:
    """Rule 10: an absent max_tokens is clipped to what fits."""
    assert admission.admit_decode(70, None, LIMITS) == 10


def halves_die_together() -> None:
    """Section 5: a half's failure cancels the other, in the same step as the client hears of it."""
    _, effects = pairing.step(pairing.start(), pairing.HalfFailed(pairing.Side.PREFILL, BROKEN))
    assert effects == (pairing.CancelHalf(pairing.Side.DECODE, BROKEN), pairing.GaveUp(BROKEN, may_retry=True))


def no_retry_after_first_token() -> None:
    """Section 5: after the first token has reached the client, never."""
    state, _ = pairing.step(pairing.start(), pairing.TokensCame())
    _, effects = pairing.step(state, pairing.HalfFailed(pairing.Side.DECODE, BROKEN))
    assert pairing.GaveUp(BROKEN, may_retry=False) in effects


def kept_answers_may_be_retried() -> None:
    """Section 5: what the router keeps has not reached the client, so a failure of decode's is not the client's."""
    state, _ = pairing.step(pairing.start(kept=True), pairing.TokensCame())
    _, effects = pairing.step(state, pairing.HalfFailed(pairing.Side.DECODE, BROKEN))
    assert pairing.GaveUp(BROKEN, may_retry=True) in effects
    _, effects = pairing.step(state, pairing.HalfFailed(pairing.Side.DECODE, GONE))
    assert pairing.GaveUp(GONE, may_retry=False) in effects


def a_handoff_finishes_first() -> None:
    """`--on-disconnect after-handoff`: nobody is cancelled before the commit, and nothing is tried again."""
    leaving, effects = pairing.step(pairing.start(), pairing.ClientLeft(GONE))
    assert effects == ()
    _, effects = pairing.step(leaving, pairing.TokensCame())
    assert pairing.CancelHalf(pairing.Side.DECODE, GONE) in effects
    _, effects = pairing.step(leaving, pairing.HalfFailed(pairing.Side.PREFILL, BROKEN))
    assert pairing.GaveUp(BROKEN, may_retry=False) in effects


OPENED = (failure_of("x", "a"), failure_of("y", "b"))


def one_tenant_opens_no_breaker() -> None:
    """Whatever one tenant asks, only a probe opens."""
    assert breaker.admits(breaker_after(failure_of("x", "a"), failure_of("y", "a"), failure_of("z", "a")))
    assert not breaker.admits(breaker_after(*OPENED))


def a_prompt_counts_once() -> None:
    """A request that is sent again and again is suspect itself."""
    assert breaker_after(failure_of("x", "a"), failure_of("x", "a")).phase is breaker.Phase.CLOSED


def only_a_probe_closes() -> None:
    """Not what was under way when the breaker opened, although it was answered."""
    assert not breaker.admits(breaker_after(*OPENED, breaker.Served()))
    assert not breaker.admits(breaker_after(*OPENED, breaker.ProbeBegan(), breaker.Served()))
    assert breaker.admits(breaker_after(*OPENED, breaker.ProbeBegan(), breaker.ProbePassed()))


def an_open_breaker_is_probed_again() -> None:
    """A probe that says nothing is followed by another one: nobody is locked out for ever."""
    for end in (breaker.ProbeEnded(), breaker.ProbeFailed()):
        _, effects = breaker.step(breaker_after(*OPENED, breaker.ProbeBegan()), end, 2)
        assert breaker.WantProbe(1) in effects


def clients_open_no_breaker() -> None:
    """Neither a client's own fault nor a full queue is a peer's failure, nor that there was no room for too long."""
    assert breaker.blamed(Failure("queue_full", "", Fault.DECODE, 429)) == ()
    assert breaker.blamed(sender_clocks.NO_PUBLISH) == ()
    assert breaker.blamed(GONE) == ()
    assert breaker.blamed(BROKEN) == (pairing.Side.PREFILL,)


ALL = tuple(
    check
    for name, check in sorted(globals().items())
    if callable(check) and getattr(check, "__module__", "") == __name__
)
