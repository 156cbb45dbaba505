"""Decode's half, told as short stories: what the tables and worlds show only as words and states."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from quiesce.errors import InvariantBroken
from quiesce.protocol import receiver_rules
from quiesce.protocol.attempt import Phase
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import AbortAck, Bound, Done, Fail, OpenAttempts
from quiesce.protocol.receiver_io import (
    Abandon,
    Attach,
    FenceProved,
    Finished,
    Ignored,
    Proof,
    Release,
    RequestFailed,
    Send,
    StartTimer,
    Timer,
    TimerFired,
    Verified,
    Verify,
)
from tests.protocol.scene import (
    BROKEN,
    D1,
    DIGEST,
    DONE,
    GONE,
    ONE,
    P0,
    P1,
    RID,
    STRANGER,
    decode_runs,
    from_prefill,
    kinds,
    reserve,
)


def sent_to(effects: object) -> list[tuple[int, int]]:
    """(decode rank, prefill rank) of each message."""
    assert isinstance(effects, tuple)
    return [(each.envelope.sender.rank, each.envelope.to.rank) for each in effects if isinstance(each, Send)]


def test_the_usual_way() -> None:
    state, effects = decode_runs(reserve())
    assert kinds(effects) == ["Minted", "StartTimer", "Publish", "StartTimer"]
    state, effects = decode_runs(from_prefill(Bound()), from_prefill(DONE), state=state)
    assert effects == (Verify(ONE, 5, ""),)
    state, effects = decode_runs(Verified(ONE), state=state)
    assert kinds(effects) == ["StopTimers", "Cache", "Attach", "Committed"]
    assert Attach(ONE, 5) in effects
    state, effects = decode_runs(Finished(ONE), state=state)
    assert Release(ONE, 0, Proof.DRAINED) in effects
    assert receiver_rules.open_attempts(state) == OpenAttempts(type(ONE)(2))


def test_the_first_tokens_logprobs_are_carried() -> None:
    told = TokenLogprobs(-0.5, (5,), (-0.5,))
    _, effects = decode_runs(
        reserve(), from_prefill(Bound()), from_prefill(replace(DONE, first_logprobs=told)), Verified(ONE)
    )
    assert Attach(ONE, 5, told) in effects


def test_nobody_was_told_so_nothing_was_armed() -> None:
    request = reserve()
    state, _ = decode_runs(type(request)(RID, request.room, DIGEST, request.leases, (), 1))
    assert state.attempts[ONE].phase is Phase.RESERVED
    state, effects = decode_runs(TimerFired(ONE, Timer.HANDOFF), state=state)
    assert Release(ONE, 0, Proof.NEVER_ARMED) in effects
    assert not state.attempts


def test_every_decode_rank_publishes_to_every_prefill_rank() -> None:
    _, effects = decode_runs(reserve(P1, P0, ranks=2), ranks=2)
    assert sorted(sent_to(effects)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_fan_out_releases_each_decode_rank_by_its_own_proof() -> None:
    state, _ = decode_runs(reserve(P0, P1, ranks=2), Abandon(ONE, GONE), ranks=2)
    state, effects = decode_runs(from_prefill(AbortAck(), to=D1), from_prefill(AbortAck(), P1, to=D1), state=state)
    assert effects == (Release(ONE, 1, Proof.DRAINED),)
    state, effects = decode_runs(TimerFired(ONE, Timer.RESEND), state=state)
    assert sent_to(effects) == [(0, 0), (0, 1)]
    state, effects = decode_runs(FenceProved(P0, ONE), from_prefill(AbortAck(), P1), state=state)
    assert Release(ONE, 0, Proof.FENCED) in effects
    assert not state.attempts


def test_commit_waits_for_every_rank_at_every_rank() -> None:
    state, _ = decode_runs(reserve(P0, P1, ranks=2), ranks=2)
    for rank, told in ((P0, None), (P1, None), (P0, D1)):
        state, effects = decode_runs(from_prefill(DONE, rank, to=told or type(D1)(0, D1.incarnation)), state=state)
        assert effects == ()
    _, effects = decode_runs(from_prefill(DONE, P1, to=D1), state=state)
    assert kinds(effects) == ["Verify"]


@pytest.mark.parametrize("second", [Done(DIGEST, (1,), "", 6), Done(DIGEST, (1,), "f" * 32, 5)])
def test_ranks_that_disagree_fail_the_attempt(second: Done) -> None:
    _, effects = decode_runs(reserve(P0, P1), from_prefill(DONE), from_prefill(second, P1))
    assert [each.failure.code for each in effects if isinstance(each, RequestFailed)] == ["content_mismatch"]


def test_resending_backs_off_and_stops_when_all_is_bound() -> None:
    state, effects = decode_runs(reserve(P0, P1), from_prefill(Bound()), TimerFired(ONE, Timer.RESEND))
    assert sent_to(effects) == [(0, 1)]
    assert effects[-1] == StartTimer(ONE, Timer.RESEND, 1)
    state, effects = decode_runs(*[TimerFired(ONE, Timer.RESEND)] * 20, state=state)
    assert effects[-1] == StartTimer(ONE, Timer.RESEND, receiver_rules.MAX_RESEND_ROUND)
    _, effects = decode_runs(from_prefill(Bound(), P1), TimerFired(ONE, Timer.RESEND), state=state)
    assert effects == ()


def test_a_fence_of_a_dead_peer_ends_all_its_attempts_at_once() -> None:
    """Under way, held and quarantined alike; an attempt of another prefill is not touched."""
    under_way, held, other = reserve(), reserve(), reserve(STRANGER)
    state, _ = decode_runs(held, under_way, other, Abandon(ONE, GONE), TimerFired(ONE, Timer.HOLD))
    state, effects = decode_runs(FenceProved(P0), state=state)
    assert [each.proof for each in effects if isinstance(each, Release)] == [Proof.FENCED, Proof.FENCED]
    assert [each.attempt for each in effects if isinstance(each, RequestFailed)] == [2]
    assert list(state.attempts) == [3]


def test_poison_is_answered_once_decode_has_its_proof() -> None:
    poisoned = from_prefill(Fail(BROKEN, poisoned=True))
    state, _ = decode_runs(reserve(P0, P1), poisoned)
    state, effects = decode_runs(poisoned, state=state)
    assert effects == (Ignored("fail", "late"),)
    state, _ = decode_runs(FenceProved(P0, ONE), state=state)
    _, effects = decode_runs(poisoned, state=state)
    assert kinds(effects) == ["Fenced"]


def test_request_fails_once() -> None:
    state, _ = decode_runs(reserve(), Abandon(ONE, GONE))
    for fact in (Abandon(ONE, GONE), from_prefill(Fail(BROKEN)), TimerFired(ONE, Timer.HANDOFF)):
        state, effects = decode_runs(fact, state=state)
        assert "RequestFailed" not in kinds(effects)


def test_a_very_long_list_of_open_attempts_is_cut_safely(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not listed any more counts as open, never as closed."""
    monkeypatch.setattr(receiver_rules, "MAX_OPEN_LISTED", 2)
    state, _ = decode_runs(*[reserve()] * 4, Abandon(ONE, GONE), from_prefill(AbortAck()))
    told = receiver_rules.open_attempts(state)
    assert told == OpenAttempts(type(ONE)(4), (type(ONE)(2), type(ONE)(3)))
    assert told.is_closed(ONE)
    assert not any(told.is_closed(number) for number in state.attempts)


def test_one_lease_per_decode_rank_is_demanded() -> None:
    with pytest.raises(InvariantBroken):
        decode_runs(reserve(), ranks=2)
