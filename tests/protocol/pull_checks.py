"""Short checks of single rules in pull; each is a test, and kills mutants of its rule."""

from __future__ import annotations

from quiesce.ids import RequestId
from quiesce.protocol.attempt import Phase
from quiesce.protocol.lender_io import LenderInput, ReaderDead, Revoked
from quiesce.protocol.messages import Abort, AbortAck, Committed, Fail, Fenced, Progress
from quiesce.protocol.puller_io import EndpointClosed, LaunchRead, PullerInput, ReadSettled
from quiesce.protocol.receiver_io import (
    Abandon,
    Finished,
    Ignored,
    PeerReplaced,
    Proof,
    Release,
    StartTimer,
    StreamLost,
    Timer,
    TimerFired,
    Verified,
)
from quiesce.protocol.record import RecordPhase
from quiesce.protocol.sender_io import (
    Arrived,
    DecodeLost,
    DecodeReplaced,
    Ended,
    Outcome,
    ReleaseSource,
    SenderTimer,
    SenderTimerFired,
    StartSenderTimer,
)
from tests.protocol.scene import (
    BROKEN,
    D0,
    D1,
    DIGEST,
    GONE,
    KEY,
    KEY1,
    ONE,
    OTHER_DIGEST,
    P0,
    P1,
    RID,
    ROOM,
    STRANGER,
    ask,
    from_decode,
    from_prefill,
    kinds,
    lender_runs,
    lent,
    offer,
    puller_runs,
    reserve,
)

READING = (reserve(), from_prefill(offer()))
LENT = (Arrived(RID, ROOM, DIGEST), from_decode(ask()), lent())
LANDED = ReadSettled(ONE, 1, Outcome.LANDED)
QUIESCED = ReadSettled(ONE, 1, Outcome.FAILED_QUIESCED)
UNKNOWN = ReadSettled(ONE, 1, Outcome.FAILED_IN_FLIGHT)
COMMITTED = (*READING, LANDED, Verified(ONE))


# ---------------------------------------------------------------- decode


def a_hold_comes_before_what_is_said_of_it() -> None:
    """Rule 1: the hold and its clock exist before prefill hears that the hand-off failed."""
    _, effects = puller_runs(*READING, Abandon(ONE, GONE))
    assert kinds(effects) == ["StopTimers", "Hold", "StartTimer", "Fail", "RequestFailed"]


def every_failed_read_is_held() -> None:
    """Rule 2, and section 6: whoever ends it, a read that is under way keeps its page. Prefill's word frees nothing."""
    ends: tuple[PullerInput, ...] = (
        Abandon(ONE, GONE),
        from_prefill(Fail(BROKEN)),
        from_prefill(Abort()),
        PeerReplaced(P0),
        TimerFired(ONE, Timer.HANDOFF),
    )
    for end in ends:
        state, effects = puller_runs(*READING, end)
        assert "Release" not in kinds(effects)
        assert "AbortAck" not in kinds(effects)
        assert state.attempts[ONE].phase is Phase.HOLDING


def an_ack_waits_for_every_read() -> None:
    """Rule 4: ABORT_ACK, and the pages, once every launched read is terminal, however it ended."""
    begun = (reserve(pages=2), from_prefill(offer(pages=2)), Abandon(ONE, GONE))
    state, effects = puller_runs(*begun, LANDED, batch_pages=1)
    assert effects == ()
    for outcome in (Outcome.LANDED, Outcome.FAILED_QUIESCED):
        _, effects = puller_runs(ReadSettled(ONE, 2, outcome), state=state)
        assert kinds(effects) == ["AbortAck", "Release", "StopTimers"]
        assert Release(ONE, 0, Proof.DRAINED) in effects


def a_failed_attempt_launches_no_read() -> None:
    """Rule 4: what waits for its turn is dropped."""
    begun = (reserve(pages=2), from_prefill(offer(pages=2)))
    state, effects = puller_runs(*begun, batch_pages=1, window=1)
    assert kinds(effects) == ["LaunchRead"]
    state, _ = puller_runs(Abandon(ONE, GONE), state=state)
    _, effects = puller_runs(LANDED, state=state)
    assert kinds(effects) == ["AbortAck", "Release", "StopTimers"]
    _, effects = puller_runs(*begun, QUIESCED, batch_pages=1, window=1)
    assert "LaunchRead" not in kinds(effects)


def a_read_of_unknown_fate_is_never_acked() -> None:
    """Rule 5: not by a clock, nor by prefill's word; decode's own closed endpoint is the proof."""
    for facts in ((UNKNOWN,), (Abandon(ONE, GONE), UNKNOWN), (UNKNOWN, UNKNOWN)):
        state, _ = puller_runs(*READING, *facts)
        others = (from_prefill(Abort()), PeerReplaced(P0), StreamLost(P0), TimerFired(ONE, Timer.HOLD), LANDED)
        for fact in others:
            state, effects = puller_runs(fact, state=state)
            assert not {"AbortAck", "Release"} & set(kinds(effects))
        _, effects = puller_runs(EndpointClosed(), state=state)
        assert kinds(effects) == ["Fenced", "Release", "StopTimers"]
        assert Release(ONE, 0, Proof.FENCED) in effects


def a_hold_that_lasts_asks_for_the_endpoint() -> None:
    """Section 3: a clock escalates, and frees nothing."""
    state, effects = puller_runs(*READING, Abandon(ONE, GONE), TimerFired(ONE, Timer.HOLD))
    assert kinds(effects) == ["CloseEndpoint", "Quarantine"]
    assert state.attempts[ONE].phase is Phase.QUARANTINED


def a_closed_endpoint_ends_what_it_read() -> None:
    """What reads is over, whatever is reported of it later; what reads nothing goes on."""
    state, effects = puller_runs(*READING, reserve(request=RequestId("r2")), EndpointClosed())
    assert kinds(effects) == [
        *("StopTimers", "Hold", "StartTimer", "RequestFailed", "Fenced", "Release", "StopTimers"),
    ]
    assert [each.phase for each in state.attempts.values()] == [Phase.PUBLISHED]
    _, effects = puller_runs(LANDED, state=state)
    assert effects == (Ignored("read_settled", "unknown"),)


def ranks_whose_reads_were_over_ack_when_the_endpoint_closes() -> None:
    """Section 6: each decode rank's lender hears a word of its own before the pages are somebody else's."""
    begun = (reserve(ranks=2), from_prefill(offer()), from_prefill(offer(), to=D1), LANDED)
    _, effects = puller_runs(*begun, EndpointClosed(), ranks=2)
    assert [each for each in kinds(effects) if each in ("Fenced", "AbortAck", "Release")] == [
        *("Fenced", "AbortAck", "Release", "Release"),
    ]


def commit_waits_for_every_rank_and_read() -> None:
    """Rules 8 and 14: every rank has offered, and every read of every offer is terminal."""
    state, effects = puller_runs(reserve(P0, P1), from_prefill(offer()), LANDED)
    assert effects == ()
    state, effects = puller_runs(from_prefill(offer(), sender=P1), state=state)
    assert kinds(effects) == ["LaunchRead"]
    _, effects = puller_runs(ReadSettled(ONE, 2, Outcome.LANDED), state=state)
    assert kinds(effects) == ["Verify"]
    _, effects = puller_runs(reserve(pages=2), from_prefill(offer(pages=2)), LANDED, batch_pages=1)
    assert effects == ()


def what_is_not_covered_is_not_committed() -> None:
    """Rule 11."""
    _, effects = puller_runs(*READING, LANDED, Verified(ONE, BROKEN))
    assert "Attach" not in kinds(effects)
    assert Release(ONE, 0, Proof.DRAINED) in effects


def a_foreign_offer_is_not_read() -> None:
    """Another prompt, too few pages, ranks that disagree: no read is launched."""
    for wrong in (offer(digest=OTHER_DIGEST), offer(pages=2)):
        _, effects = puller_runs(reserve(), from_prefill(wrong))
        assert "LaunchRead" not in kinds(effects)
        assert Release(ONE, 0, Proof.NEVER_ARMED) in effects
    _, effects = puller_runs(reserve(P0, P1), from_prefill(offer()), from_prefill(offer(token=6), sender=P1))
    assert "LaunchRead" not in kinds(effects)
    _, effects = puller_runs(reserve(), from_prefill(offer(), sender=STRANGER))
    assert effects == (Ignored("offer", "foreign"),)


def who_goes_on_offering_is_answered() -> None:
    """Committed, held with and without reads, over: the lender hears what it may do."""
    again = from_prefill(offer())
    cases = (
        ((*COMMITTED, again), ["Committed"]),
        ((*READING, Abandon(ONE, GONE), again), ["Fail"]),
        ((*COMMITTED, Finished(ONE), again), ["Fenced"]),
        ((reserve(), Abandon(ONE, GONE), from_prefill(Abort())), ["Fenced"]),
        ((*READING, again), ["Ignored"]),
    )
    for facts, said in cases:
        assert kinds(puller_runs(*facts)[1]) == said
    two = (reserve(ranks=2), from_prefill(offer()), Abandon(ONE, GONE), from_prefill(Abort(), to=D1))
    assert kinds(puller_runs(*two, ranks=2)[1]) == ["AbortAck"]


def a_rank_that_computes_is_waited_for() -> None:
    """Rule 17: PROGRESS begins the clock anew, until everything is offered."""
    _, effects = puller_runs(reserve(), from_prefill(Progress()))
    assert effects == (StartTimer(ONE, Timer.HANDOFF),)
    state, _ = puller_runs(reserve(P0, P1), from_prefill(offer()))
    _, effects = puller_runs(from_prefill(Progress(), sender=P1), state=state)
    assert effects == (StartTimer(ONE, Timer.HANDOFF),)


def a_stream_is_lost_after_the_offer() -> None:
    """What was offered is read without it; what was not is not waited for."""
    state, effects = puller_runs(*READING, StreamLost(P0))
    assert (effects, state.attempts[ONE].phase) == ((), Phase.PUBLISHED)
    _, effects = puller_runs(reserve(), StreamLost(P0))
    assert "RequestFailed" in kinds(effects)


def reads_are_capped() -> None:
    """At most `window` reads of at most `batch_pages` pages from one rank into one lease."""
    state, effects = puller_runs(reserve(pages=5), from_prefill(offer(pages=5)), batch_pages=2, window=2)
    spans = [(each.first_page, each.pages) for each in effects if isinstance(each, LaunchRead)]
    assert spans == [(0, 2), (2, 2)]
    _, effects = puller_runs(LANDED, state=state)
    assert [(each.first_page, each.pages) for each in effects if isinstance(each, LaunchRead)] == [(4, 1)]


# ---------------------------------------------------------------- prefill


def a_window_opens_before_the_offer() -> None:
    """Arm before notify: decode never hears of a window that is not there."""
    _, effects = lender_runs(*LENT)
    assert kinds(effects) == [
        "Lend",
        "Offer",
        "StopSenderTimers",
        "StartSenderTimer",
        "StartSenderTimer",
        "PrefillDone",
    ]


def lent_pages_are_held_until_a_proof() -> None:
    """Rule 13: whatever ends the hand-off at prefill, its pages are decode's to read until a proof says no."""
    ends: tuple[LenderInput, ...] = (
        Ended(RID, GONE),
        from_decode(Fail(BROKEN)),
        SenderTimerFired(KEY, SenderTimer.LENT),
        DecodeReplaced(D0),
    )
    for end in ends:
        state, effects = lender_runs(*LENT, end)
        assert not {"ReleaseSource", "TakeBack"} & set(kinds(effects))
        assert kinds(effects).count("Revoke") == 1
        assert state.records[KEY].phase is RecordPhase.ABORTED
    state, effects = lender_runs(*LENT, DecodeLost(D0))
    assert (effects, state.records[KEY].phase) == ((), RecordPhase.OFFERED)


def every_proof_takes_a_window_back() -> None:
    """Section 6: acked, committed, fenced, closed, revoked, or the reader known dead; also after a failure."""
    closed = from_decode(Committed(), attempt=2, still=(2,), watermark=3)
    proofs: tuple[tuple[LenderInput, Proof], ...] = (
        (from_decode(AbortAck()), Proof.DRAINED),
        (from_decode(Committed()), Proof.DRAINED),
        (from_decode(Fenced()), Proof.FENCED),
        (closed, Proof.FENCED),
        (Revoked(KEY), Proof.FENCED),
        (ReaderDead(D0), Proof.FENCED),
    )
    for fact, proof in proofs:
        for before in ((), (Ended(RID, GONE),)):
            state, effects = lender_runs(*LENT, *before, fact)
            assert ReleaseSource(RID, proof) in effects
            assert kinds(effects).count("TakeBack") == 1
            assert kinds(effects).index("TakeBack") < kinds(effects).index("ReleaseSource")
            assert not state.requests


def a_replaced_reader_may_still_read() -> None:
    """Section 3: another life in its place is no evidence; the old one's death is, before and after that."""
    state, effects = lender_runs(*LENT, DecodeReplaced(D0))
    assert "ReleaseSource" not in kinds(effects)
    state, effects = lender_runs(ReaderDead(STRANGER), state=state)
    assert "ReleaseSource" not in kinds(effects)
    _, effects = lender_runs(ReaderDead(D0), state=state)
    assert ReleaseSource(RID, Proof.FENCED) in effects


def a_failed_loan_says_abort_until_it_is_answered() -> None:
    """ABORT is re-sent, OFFER is not any more; no clock is started again once there is a proof."""
    again = SenderTimerFired(KEY, SenderTimer.RESEND)
    assert kinds(lender_runs(*LENT, again)[1]) == ["Offer", "StartSenderTimer"]
    for end in (Ended(RID, GONE), from_decode(Fail(BROKEN)), SenderTimerFired(KEY, SenderTimer.LENT)):
        assert StartSenderTimer(KEY, SenderTimer.RESEND) in lender_runs(*LENT, end)[1]
        assert kinds(lender_runs(*LENT, end, again)[1]) == ["Abort", "StartSenderTimer"]
    assert kinds(lender_runs(*LENT, Ended(RID, GONE), from_decode(AbortAck()), again)[1]) == ["SenderIgnored"]


def lent_pages_are_cached_when_committed() -> None:
    """Rule 12: neither when computed, nor after a failure, nor when it is only known that nobody reads them."""
    for fact in (from_decode(AbortAck()), from_decode(Fenced()), Revoked(KEY), Ended(RID, GONE)):
        assert "CacheSource" not in kinds(lender_runs(*LENT, fact)[1])
    assert "CacheSource" not in kinds(lender_runs(*LENT)[1])
    assert "CacheSource" not in kinds(lender_runs(*LENT, Ended(RID, GONE), from_decode(Committed()))[1])
    _, effects = lender_runs(*LENT, from_decode(Committed()))
    assert kinds(effects) == ["TakeBack", "StopSenderTimers", "CacheSource", "ReleaseSource"]


def one_decode_rank_does_not_free_what_another_reads() -> None:
    """Rule 6 mirrored: each decode rank has a window of its own."""
    two = (Arrived(RID, ROOM, DIGEST, decode_ranks=2), from_decode(ask()), from_decode(ask(), D1), lent(77, 78))
    for fact in (from_decode(Committed()), from_decode(AbortAck()), from_decode(Fenced()), ReaderDead(D0)):
        state, effects = lender_runs(*two, fact)
        assert kinds(effects).count("TakeBack") == 1
        assert "ReleaseSource" not in kinds(effects)
    state, _ = lender_runs(*two, from_decode(Committed()))
    _, effects = lender_runs(from_decode(Committed(), D1), state=state)
    assert kinds(effects)[-2:] == ["CacheSource", "ReleaseSource"]
    state, _ = lender_runs(*two, from_decode(AbortAck()))
    _, effects = lender_runs(Revoked(KEY1), state=state)
    assert ReleaseSource(RID, Proof.FENCED) in effects


def what_ended_is_not_asked_for_again() -> None:
    """Rule 9: no late ASK revives an attempt that was acked, heard of or not."""
    for before in ((), (from_decode(ask()),), LENT):
        state, _ = lender_runs(*before, from_decode(AbortAck()))
        state, _ = lender_runs(Arrived(RequestId("r2"), ROOM, DIGEST), state=state)
        state, effects = lender_runs(from_decode(ask()), state=state)
        assert "StartCompute" not in kinds(effects)
        assert state.records[KEY].phase is RecordPhase.ACKED


def an_owner_hears_once() -> None:
    """PREFILL_DONE is the last word: what ends the loan later is nothing that the router must know."""
    for fact in (Ended(RID, GONE), from_decode(AbortAck()), SenderTimerFired(KEY, SenderTimer.LENT), Revoked(KEY)):
        assert not {"PrefillFailed", "PrefillDone"} & set(kinds(lender_runs(*LENT, fact)[1]))


def a_revoked_offer_is_withdrawn() -> None:
    """Whoever revoked it unasked, decode is told."""
    _, effects = lender_runs(*LENT, Revoked(KEY))
    assert kinds(effects) == ["TakeBack", "StopSenderTimers", "Fail", "StopSenderTimers", "ReleaseSource"]


ALL = tuple(
    check
    for name, check in sorted(globals().items())
    if callable(check) and getattr(check, "__module__", "") == __name__
)
