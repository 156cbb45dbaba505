"""Prefill's half, told as short stories: what the tables and worlds show only as words and states."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from quiesce.errors import InvariantBroken
from quiesce.ids import Attempt, AttemptKey, Digest, RequestId, Room
from quiesce.protocol import sender_rules
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Abort, Bound, Committed, Done, Fail, Fenced, OpenAttempts
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.sender_io import (
    Arrived,
    ChunkComputed,
    DecodeReplaced,
    Ended,
    Launch,
    Outcome,
    PrefillDone,
    PrefillFailed,
    ReleaseSource,
    Reply,
    SenderTimer,
    SenderTimerFired,
    SourceFenced,
    StartCompute,
    StartSenderTimer,
    WriteSettled,
)
from tests.protocol.scene import (
    BROKEN,
    D0,
    D1,
    DIGEST,
    GONE,
    KEY,
    KEY1,
    OTHER_DIGEST,
    RID,
    ROOM,
    from_decode,
    kinds,
    prefill_runs,
    publish,
)

ARRIVED = Arrived(RID, ROOM, DIGEST)
LAST = ChunkComputed(RID, 0, 1, last=True, first_token=5, payload_digest="f" * 32)


def landed(write: int, key: AttemptKey = KEY) -> WriteSettled:
    return WriteSettled(key, write, Outcome.LANDED)


def launched(effects: object) -> list[tuple[int, int, bool]]:
    assert isinstance(effects, tuple)
    return [(each.first_page, each.pages, each.last) for each in effects if isinstance(each, Launch)]


def test_the_usual_way() -> None:
    state, effects = prefill_runs(ARRIVED, from_decode(publish(held_tokens=0)))
    assert kinds(effects) == ["StopSenderTimers", "Bound", "StartSenderTimer", "StopSenderTimers", "StartCompute"]
    state, effects = prefill_runs(LAST, state=state)
    assert effects == (Launch(KEY, RID, 1, 0, 1, publish().lease, last=True, first_token=5),)
    state, effects = prefill_runs(landed(1), state=state)
    assert kinds(effects)[:3] == ["Done", "StopSenderTimers", "StartSenderTimer"]
    assert kinds(effects)[3:] == ["CacheSource", "PrefillDone", "ReleaseSource"]
    body = next(each.envelope.body for each in effects if isinstance(each, Reply))
    assert body == Done(DIGEST, (1,), "f" * 32, 5)
    state, effects = prefill_runs(from_decode(Committed()), state=state)
    assert kinds(effects) == ["StopSenderTimers"]
    state, effects = prefill_runs(SenderTimerFired(KEY, SenderTimer.RESEND), state=state)
    assert kinds(effects) == ["SenderIgnored"]


def test_the_first_tokens_logprobs_are_carried() -> None:
    told = TokenLogprobs(-0.5, (5,), (-0.5,))
    chunk = replace(LAST, first_logprobs=told)
    _, effects = prefill_runs(ARRIVED, from_decode(publish(held_tokens=0)), chunk, landed(1))
    body = next(each.envelope.body for each in effects if isinstance(each, Reply))
    assert body == Done(DIGEST, (1,), "f" * 32, 5, told)


def test_publish_may_come_first() -> None:
    state, effects = prefill_runs(from_decode(publish()))
    assert effects == (StartSenderTimer(KEY, SenderTimer.ORPHAN),)
    _, effects = prefill_runs(ARRIVED, state=state)
    assert StartCompute(RID, 0) in effects


def test_of_two_publishes_that_came_first_a_request_takes_one() -> None:
    """An equal request is still on its way to this door: the second waits for it."""
    _, effects = prefill_runs(
        from_decode(publish()), from_decode(publish(), attempt=2, still=(1, 2), watermark=3), ARRIVED
    )
    assert kinds(effects).count("Bound") == 1


@pytest.mark.parametrize(("room", "digest"), [(ROOM, OTHER_DIGEST), (Room(8), DIGEST)])
def test_halves_meet_by_room_and_digest_only(room: Room, digest: Digest) -> None:
    _, effects = prefill_runs(Arrived(RID, room, digest), from_decode(publish()))
    assert not any(isinstance(each, Reply) and each.envelope.body == Bound() for each in effects)


def test_two_equal_requests_each_get_one_publish() -> None:
    twin = Arrived(RequestId("r2"), ROOM, DIGEST)
    state, effects = prefill_runs(ARRIVED, twin, from_decode(publish()))
    assert StartCompute(RID, 0) in effects
    _, effects = prefill_runs(from_decode(publish(), attempt=2, still=(1, 2), watermark=3), state=state)
    assert StartCompute(RequestId("r2"), 0) in effects


def test_compute_starts_when_every_decode_rank_is_bound() -> None:
    state, effects = prefill_runs(Arrived(RID, ROOM, DIGEST, decode_ranks=2), from_decode(publish()))
    assert "StartCompute" not in kinds(effects)
    state, effects = prefill_runs(from_decode(publish(), D1), state=state)
    assert StartCompute(RID, 0) in effects
    state, effects = prefill_runs(LAST, state=state)
    assert [each.key for each in effects if isinstance(each, Launch)] == [KEY, KEY1]
    state, effects = prefill_runs(landed(1), state=state)
    assert kinds(effects) == ["Done", "StopSenderTimers", "StartSenderTimer"]
    _, effects = prefill_runs(landed(2, KEY1), state=state)
    assert PrefillDone(RID) in effects
    assert ReleaseSource(RID, Proof.DRAINED) in effects


def test_decode_ranks_must_hold_the_same_prefix() -> None:
    """Writing the shorter one's missing pages would hit the longer one's shared pages."""
    two = Arrived(RID, ROOM, DIGEST, decode_ranks=2)
    _, effects = prefill_runs(two, from_decode(publish(held_tokens=16)), from_decode(publish(), D1))
    assert [each.failure.code for each in effects if isinstance(each, PrefillFailed)] == ["held_tokens_differ"]
    assert kinds(effects).count("Fail") == 2


def test_one_decode_ranks_abort_stops_the_other_too() -> None:
    state, _ = prefill_runs(
        Arrived(RID, ROOM, DIGEST, decode_ranks=2), from_decode(publish()), from_decode(publish(), D1), LAST
    )
    state, effects = prefill_runs(from_decode(Abort()), state=state)
    assert kinds(effects) == ["StopSenderTimers", "StopSenderTimers", "StopSenderTimers", "Fail", "PrefillFailed"]
    state, effects = prefill_runs(landed(1), state=state)
    assert kinds(effects) == ["AbortAck"], "the other decode rank's write still reads the source"
    state, effects = prefill_runs(landed(2, KEY1), from_decode(Abort(), D1), state=state)
    assert kinds(effects) == ["StopSenderTimers", "AbortAck"]


def test_one_fenced_decode_rank_frees_nothing_that_the_other_still_reads() -> None:
    state, _ = prefill_runs(
        Arrived(RID, ROOM, DIGEST, decode_ranks=2), from_decode(publish()), from_decode(publish(), D1), LAST
    )
    state, effects = prefill_runs(from_decode(Fenced()), state=state)
    assert "ReleaseSource" not in kinds(effects)
    _, effects = prefill_runs(landed(2, KEY1), state=state)
    assert ReleaseSource(RID, Proof.FENCED) in effects


def test_calls_are_capped_and_at_most_a_window_is_out() -> None:
    chunk = ChunkComputed(RID, 2, 5, last=True, first_token=5)
    state, effects = prefill_runs(ARRIVED, from_decode(publish(pages=7)), chunk, batch_pages=2)
    assert launched(effects) == [(2, 2, False), (4, 2, False)]
    state, effects = prefill_runs(landed(2), state=state)
    assert launched(effects) == [(6, 1, True)]
    state, effects = prefill_runs(landed(1), landed(3), state=state)
    assert kinds(effects)[0] == "Done"


def test_last_chunk_without_pages_still_writes_the_metadata() -> None:
    chunks = (ChunkComputed(RID, 0, 1), ChunkComputed(RID, 1, 0, last=True, first_token=5))
    _, effects = prefill_runs(ARRIVED, from_decode(publish()), *chunks)
    assert launched(effects) == [(1, 0, True)]
    assert sender_rules.split(ChunkComputed(RID, 1, 0), 4) == ()


def test_a_lease_that_is_too_small_is_decodes_fault() -> None:
    _, effects = prefill_runs(ARRIVED, from_decode(publish(pages=1)), ChunkComputed(RID, 0, 2))
    assert [each.failure.code for each in effects if isinstance(each, PrefillFailed)] == ["lease_too_small"]
    assert not launched(effects)


def test_chunks_out_of_order_are_our_bug() -> None:
    state, _ = prefill_runs(ARRIVED, from_decode(publish(pages=4)), ChunkComputed(RID, 0, 1))
    with pytest.raises(InvariantBroken):
        prefill_runs(ChunkComputed(RID, 2, 1), state=state)


def test_source_proofs() -> None:
    sending = (ARRIVED, from_decode(publish()), LAST)
    closed = from_decode(Committed(), attempt=9, still=(), watermark=9)
    for facts, proof in (
        ((ARRIVED, Ended(RID, GONE)), Proof.NEVER_ARMED),
        ((*sending, Ended(RID, GONE), landed(1)), Proof.DRAINED),
        ((*sending, Ended(RID, GONE), from_decode(Fenced())), Proof.FENCED),
        ((*sending, Ended(RID, GONE), closed), Proof.FENCED),
        ((*sending, SourceFenced()), Proof.FENCED),
    ):
        _, effects = prefill_runs(*facts)
        assert ReleaseSource(RID, proof) in effects


def test_own_fence_permits_no_ack() -> None:
    state, effects = prefill_runs(ARRIVED, from_decode(publish()), LAST, SourceFenced(), from_decode(Abort()))
    assert "AbortAck" not in kinds(effects)
    _, effects = prefill_runs(landed(1), state=state)
    assert kinds(effects) == ["AbortAck"]


def test_closing_is_monotone_over_messages_in_any_order() -> None:
    """A message that lists attempt 1 as open arrives after one that closed it."""
    state, _ = prefill_runs(from_decode(Abort()), from_decode(Committed(), attempt=3, still=(3,), watermark=4))
    state, effects = prefill_runs(from_decode(publish()), state=state)
    assert kinds(effects) == ["Fail", "SenderIgnored"]  # an honest decode never publishes it: said, not left waiting
    assert not state.records
    old, new = OpenAttempts(Attempt(4), (Attempt(2), Attempt(3))), OpenAttempts(Attempt(6), (Attempt(3), Attempt(5)))
    assert sender_rules.merged(old, new) == sender_rules.merged(new, old)
    assert sender_rules.merged(old, new) == OpenAttempts(Attempt(6), (Attempt(3), Attempt(5)))


def test_a_dead_decode_is_refused_and_forgotten_but_for_its_writes() -> None:
    state, _ = prefill_runs(ARRIVED, from_decode(publish()), LAST, DecodeReplaced(D0))
    assert list(state.records) == [KEY]
    _, effects = prefill_runs(from_decode(Abort()), state=state)
    assert [each.reason for each in effects if hasattr(each, "reason")] == ["dead_life"]
    state, effects = prefill_runs(landed(1), state=state)
    assert kinds(effects) == ["ReleaseSource"]
    assert not state.records


def test_what_was_given_up_is_forgotten_in_time() -> None:
    meeting = (ROOM, DIGEST)
    state, effects = prefill_runs(ARRIVED, Ended(RID, BROKEN))
    assert StartSenderTimer(meeting, SenderTimer.FORGET) in effects
    state, effects = prefill_runs(SenderTimerFired(meeting, SenderTimer.FORGET), from_decode(publish()), state=state)
    assert kinds(effects) == ["StartSenderTimer"]
    assert not any(isinstance(each, Reply) and isinstance(each.envelope.body, Fail) for each in effects)
