"""One step, one line, the same in every run."""

from __future__ import annotations

import struct

import msgspec

from quiesce.ids import Attempt, Incarnation, PageTag, RequestId
from quiesce.protocol import trace
from quiesce.protocol.messages import Abort, AbortAck, Failure, Fault, Lease, OpenAttempts
from quiesce.protocol.receiver_io import Abandon
from quiesce.protocol.sender_io import ChunkComputed, Outcome, StopSenderTimers, WriteSettled
from tests.protocol.scene import DIGEST, GONE, KEY, ONE, P0, ROOM, decode_runs, from_decode, from_prefill, reserve


def test_a_step_reads_like_a_sentence() -> None:
    state, _ = decode_runs(reserve(), Abandon(ONE, GONE))
    fact = from_prefill(AbortAck())
    _, effects = decode_runs(fact, state=state)
    assert trace.line("decode", fact, effects) == (
        "decode <- Received(envelope=0@e0000000->0@dddddddd#1 abort_ack()) -> "
        "Release(attempt=1, decode_rank=0, proof=drained); StopTimers(attempt=1)"
    )


def test_a_worker_keeps_when_which_and_whose() -> None:
    whose = trace.machine("decode", Incarnation("0a1b2c3d" * 4))
    assert trace.record(2.5, 17, whose, Abandon(ONE, GONE), ()).startswith("2.500000 17 decode@0a1b2c3d <- Abandon(")


def test_no_effects_is_said() -> None:
    assert trace.line("decode", Abandon(ONE, GONE), ()).endswith("-> nothing")


def test_open_attempts_and_keys_are_short() -> None:
    assert trace.show(from_decode(Abort()).envelope) == "0@dddddddd->0@e0000000#1 abort() open<2[1]"
    told = OpenAttempts(Attempt(9), tuple(map(Attempt, (1, 3, 4, 5))))
    assert trace.show(msgspec.structs.replace(from_decode(Abort()).envelope, open_attempts=told)).endswith(
        "open<9[1,3..5]"
    )
    assert trace.show(WriteSettled(KEY, 3, Outcome.LANDED)) == "WriteSettled(key=0@dddddddd#1, write=3, outcome=landed)"
    assert trace.show(StopSenderTimers((ROOM, DIGEST))) == f"StopSenderTimers(subject=(7 {DIGEST}))"


def test_long_values_are_shortened() -> None:
    few = struct.pack("<4I", 0, 11, 13, 1)
    short, long = (Lease(PageTag(255), 12, runs, 2) for runs in (few, few * 100))
    assert trace.show(short) == "Lease(12 pages [0..10] [13] tag ff slot 2)"
    assert trace.show(long) == trace.show(Lease(PageTag(255), 12, few * 100, 2))
    assert len(trace.show(long)) < 60
    assert trace.show(b"\0") == "0x00"
    assert trace.show("x" * 100) == "x" * 48 + "..."
    assert trace.show("two words\n") == r"'two words\n'"
    assert trace.show("") == "''"
    assert trace.show("a,b)") == "'a,b)'"


def test_a_peer_alone_is_short() -> None:
    assert trace.show(P0) == "0@e0000000"


def test_strangers_see_no_token_and_no_digest() -> None:
    """Digests can be guessed at: a hash of a likely prompt proves that somebody asked it."""
    told = trace.show(ChunkComputed(RequestId("req-1"), 0, 3, True, 42, DIGEST), trace.PUBLIC)
    done = "last=True, first_token=*, payload_digest=*"
    assert told == f"ChunkComputed(request=req-1, first_page=0, pages=3, {done})"
    assert trace.show(StopSenderTimers((ROOM, DIGEST)), trace.PUBLIC) == "StopSenderTimers(subject=(7 *))"
    assert DIGEST not in trace.line("decode", reserve(), decode_runs(reserve())[1], trace.PUBLIC)
    assert "what it said" not in trace.show(Failure("code", "what it said", Fault.CLIENT), trace.PUBLIC)
