"""Each invariant is silent where all is well and says what is wrong where it is not."""

from __future__ import annotations

import struct

from msgspec.structs import replace

from quiesce.ids import Attempt, AttemptKey, Digest, PageTag, Peer, RequestId
from quiesce.protocol import invariants
from quiesce.protocol.invariants import Cached, Content, Flight, Picture
from quiesce.protocol.messages import Abort, AbortAck, Lease
from quiesce.protocol.receiver_io import Abandon, Finished, Proof, Release, Timer, TimerFired, Verified
from quiesce.protocol.sender_io import Arrived, ChunkComputed, Outcome, WriteSettled
from tests.protocol.scene import (
    D0,
    DIGEST,
    DONE,
    GONE,
    KEY,
    ONE,
    P0,
    P0_NEXT,
    RID,
    ROOM,
    STRANGER,
    decode_runs,
    from_decode,
    from_prefill,
    prefill_runs,
    publish,
    reserve,
)

SENDING = (Arrived(RID, ROOM, DIGEST), from_decode(publish()), ChunkComputed(RID, 0, 1, last=True, first_token=5))
FLIGHT = Flight(P0, KEY, 1, RID)


def picture(*flights: Flight) -> Picture:
    """Attempt 1 is published and its only write flies."""
    return Picture(decode_runs(reserve())[0], (prefill_runs(*SENDING)[0],), frozenset(flights))


def test_a_write_of_an_open_attempt_is_expected() -> None:
    assert invariants.broken(picture(FLIGHT)) == ()


def test_wild_writes() -> None:
    now, state = picture(FLIGHT), decode_runs(reserve())[0]
    over, _ = decode_runs(Abandon(ONE, GONE), from_prefill(AbortAck()), state=state)
    committed, _ = decode_runs(from_prefill(DONE), Verified(ONE), state=state)
    assert invariants.no_wild_write(replace(now, receiver=over))
    assert invariants.no_wild_write(replace(now, receiver=committed))
    assert invariants.no_wild_write(picture(replace(FLIGHT, sender=STRANGER)))
    timed_out, _ = decode_runs(
        reserve(), Abandon(ONE, GONE), TimerFired(ONE, Timer.HOLD), unsafe_release_on_timeout=True
    )
    assert invariants.no_wild_write(replace(now, receiver=timed_out))


def test_a_write_for_an_earlier_life_hits_nothing() -> None:
    old = AttemptKey(Peer(0, STRANGER.incarnation), ONE)
    assert invariants.no_wild_write(picture(replace(FLIGHT, key=old))) == ()


def test_aliases() -> None:
    state, _ = decode_runs(reserve(), reserve(request=RequestId("r2")))
    two = tuple(Lease(PageTag(9), 1, b"\3\0\0\0\1\0\0\0", 0) for _ in range(1))
    attempts = state.attempts
    for number in (Attempt(1), Attempt(2)):
        attempts = attempts.set(number, replace(attempts[number], leases=two))
    shared = Picture(replace(state, attempts=attempts), ())
    assert invariants.no_alias(shared) == ("no_alias: page 3 of rank 0",)
    given_back = replace(attempts[ONE], released=frozenset({0}))
    assert invariants.no_alias(Picture(replace(state, attempts=attempts.set(ONE, given_back)), ())) == ()


def test_early_acks() -> None:
    ack, done = from_prefill(AbortAck()).envelope, from_prefill(DONE).envelope
    abort = from_decode(Abort()).envelope
    assert len(invariants.no_early_ack(replace(picture(FLIGHT), messages=frozenset({ack, done, abort})))) == 2
    assert invariants.no_early_ack(replace(picture(), messages=frozenset({ack, done}))) == ()


def test_wild_reads() -> None:
    now = picture(FLIGHT)
    done, _ = prefill_runs(WriteSettled(KEY, 1, Outcome.LANDED), state=now.senders[0])
    assert invariants.no_wild_read(replace(now, senders=(done,)))
    assert invariants.no_wild_read(picture(replace(FLIGHT, sender=P0_NEXT))) == ()


def test_leaks_at_decode() -> None:
    held, _ = decode_runs(reserve(), Abandon(ONE, GONE))
    quarantined, _ = decode_runs(TimerFired(ONE, Timer.HOLD), state=held)
    assert invariants.no_leak(Picture(held, ()))
    assert invariants.no_leak(Picture(quarantined, ()))
    assert invariants.no_leak(Picture(held, ()), frozenset({P0}))
    assert invariants.no_leak(Picture(quarantined, ()), frozenset({P0})) == ()
    committed, _ = decode_runs(reserve(), from_prefill(DONE), Verified(ONE))
    assert invariants.no_leak(Picture(committed, ()))
    assert invariants.no_leak(Picture(decode_runs(Finished(ONE), state=committed)[0], ())) == ()


def test_leaks_at_prefill() -> None:
    quarantined, _ = decode_runs(reserve(), Abandon(ONE, GONE), TimerFired(ONE, Timer.HOLD))
    poisoned, _ = prefill_runs(*SENDING, WriteSettled(KEY, 1, Outcome.FAILED_IN_FLIGHT))
    sending, _ = prefill_runs(*SENDING)
    waiting, _ = prefill_runs(Arrived(RID, ROOM, DIGEST))
    assert invariants.no_leak(Picture(quarantined, (poisoned,))) == ()
    assert len(invariants.no_leak(Picture(decode_runs()[0], (sending,)))) == 2
    assert len(invariants.no_leak(Picture(decode_runs()[0], (waiting,)))) == 1
    over = decode_runs(reserve(), Abandon(ONE, GONE), from_prefill(AbortAck()))[0]
    assert invariants.no_leak(Picture(over, (poisoned,))), "decode has its proof: the poisoned record must go"


def test_once() -> None:
    first, other = Release(ONE, 0, Proof.DRAINED), Release(ONE, 1, Proof.DRAINED)
    assert invariants.once([first, other]) == ()
    assert invariants.once([first, other, Release(ONE, 0, Proof.FENCED)]) == ("once: attempt 1, rank 0: 2 times",)


def test_stubs() -> None:
    assert invariants.no_stub(picture(), [RequestId("never")]) == ()
    assert invariants.no_stub(picture(), [RID]) == (f"no_stub: {RID}",)


def test_reading_own_context() -> None:
    attempt = decode_runs(reserve())[0].attempts[ONE]
    attempt = replace(attempt, leases=(Lease(PageTag(9), 2, b"\3\0\0\0\2\0\0\0", 0),))
    own, foreign = Content(PageTag(9), DIGEST), Content(PageTag(9), Digest("b" * 32))
    assert invariants.read_own(attempt, {(0, 3): own, (0, 4): own}) == ()
    assert invariants.read_own(attempt, {(0, 3): own, (0, 4): foreign}) == ("read_own: page 4 of rank 0",)
    assert invariants.read_own(attempt, {(0, 3): own}) == ("read_own: page 4 of rank 0",)


def test_decode_of_the_scene_is_the_one_of_the_flight() -> None:
    assert FLIGHT.key.decode == D0


def test_poison_in_a_prefix_tree() -> None:
    """A page of an attempt that has not committed, one that changed, and one that another hand-off may write."""
    own = Content(PageTag(9), DIGEST)
    cached, holds = Cached(0, 0, ONE, own), {(0, 0): own}
    under_way, _ = decode_runs(reserve())
    committed, _ = decode_runs(from_prefill(DONE), Verified(ONE), state=under_way)
    assert invariants.no_poison(committed, [cached], holds) == ()
    assert "which is published" in invariants.no_poison(under_way, [cached], holds)[0]
    assert "not what was verified" in invariants.no_poison(committed, [cached], {})[0]
    other = replace(cached, attempt=Attempt(7))
    of_page_0 = Lease(PageTag(9), 1, struct.pack("<II", 0, 1), 0)
    leased, _ = decode_runs(replace(reserve(), leases=(of_page_0,)))
    assert "is leased to 1" in invariants.no_poison(leased, [other], holds)[0]
