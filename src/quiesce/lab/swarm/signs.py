"""Which marks an event is: looked at from outside, so that workers stay readable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quiesce.ids import Attempt, AttemptKey
from quiesce.kv.prefix_cache import Reader
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.marks import Marks
from quiesce.lab.swarm.memory import Memory
from quiesce.lab.swarm.workload import Text
from quiesce.protocol import receiver_rules, sender_rules
from quiesce.protocol.attempt import Destination, Phase, PullState
from quiesce.protocol.messages import (
    Abort,
    AbortAck,
    Ask,
    Committed,
    Done,
    Envelope,
    Failure,
    Offer,
    Progress,
    Publish,
)
from quiesce.protocol.receiver_io import Proof, Timer, TimerFired
from quiesce.protocol.record import Record, RecordPhase, SenderState
from quiesce.protocol.sender_io import SenderTimer, SenderTimerFired

if TYPE_CHECKING:
    from quiesce.lab.swarm.decode import DecodeWorker

IGNORED = {
    ("abort_ack", "early"): "early ack ignored",
    ("abort_ack", "late"): "late ack ignored",
    ("abort_ack", "duplicate"): "duplicate ack ignored",
    ("publish", "closed"): "PUBLISH refused as closed",
    ("ask", "closed"): "ASK refused as closed",
    ("offer", "duplicate"): "OFFER heard twice",
}
ENDED = (RecordPhase.ACKED, RecordPhase.DONE, RecordPhase.TOMBSTONE)


def ignored(marks: Marks, kind: str, reason: str) -> None:
    """A message changed nothing, for this reason."""
    if (kind, reason) in IGNORED:
        marks.hit(IGNORED[kind, reason])
    elif reason == "foreign":
        marks.hit("foreign message ignored")
    elif reason == "other_life":
        marks.hit("message for an earlier life")
    elif reason == "dead_life":
        marks.hit("message from a dead life")


def heard_by_decode(marks: Marks, state: Any, envelope: Envelope) -> None:
    attempt = state.attempts.get(envelope.attempt)
    if envelope.to.incarnation != state.incarnation:
        return
    if attempt is None and isinstance(envelope.body, Offer) and receiver_rules.is_minted(state, envelope.attempt):
        marks.hit("OFFER of what is over")
    if attempt is None or envelope.sender not in attempt.grants:
        return
    match envelope.body:
        case Done() if receiver_rules.is_held(attempt) and _there(envelope) not in attempt.done:
            marks.hit("late DONE proves")
        case Offer() if receiver_rules.is_held(attempt):
            marks.hit("OFFER after decode gave up")
        case Abort() if receiver_rules.is_under_way(attempt):
            marks.hit("ABORT of a loan ends an attempt")
        case Progress() if attempt.phase is Phase.PUBLISHED and attempt.bound:
            marks.hit("PROGRESS restarts the clock")
        case AbortAck() if attempt.phase is Phase.QUARANTINED and _there(envelope) not in attempt.acked:
            marks.hit("quarantine released by an ack")


def _there(envelope: Envelope) -> Destination:
    return Destination(envelope.to.rank, envelope.sender)


def heard_by_prefill(marks: Marks, state: SenderState, envelope: Envelope) -> None:
    if envelope.to != state.me:
        return
    record = state.records.get(AttemptKey(envelope.sender, envelope.attempt))
    match envelope.body:
        case Publish() | Ask() as body:
            _asked(marks, state, record, body)
        case Abort() if record is None:
            marks.hit("ABORT of an unknown attempt")
        case Abort() if record is not None and record.phase is RecordPhase.ACKED:
            marks.hit("ABORT acked again")
        case AbortAck() if record is None:
            marks.hit("ABORT_ACK of an unknown attempt")
        case Committed() if record is not None and record.phase is RecordPhase.ABORTED:
            marks.hit("COMMITTED after the loan was withdrawn")


def _asked(marks: Marks, state: SenderState, record: Record | None, body: Publish | Ask) -> None:
    word = "PUBLISH" if isinstance(body, Publish) else "ASK"
    if record is None:
        _announced(marks, state, body, word)
    elif record.phase in ENDED:
        marks.hit(f"{word} refused by tombstone")
    elif sender_rules.is_active(record):
        marks.hit(f"BOUND for a copied {word}")


def _announced(marks: Marks, state: SenderState, body: Publish | Ask, word: str) -> None:
    meeting = (body.room, body.digest)
    if meeting in state.given_up:
        marks.hit(f"request given up before {word}")
    elif not any(request.meeting == meeting for request in state.requests.values()):
        marks.hit(f"{word} before its request")
    if any(request.room == body.room and request.digest != body.digest for request in state.requests.values()):
        marks.hit("equal rooms at once")


def decode_clock(marks: Marks, state: Any, fact: TimerFired) -> None:
    attempt = state.attempts.get(fact.attempt)
    if attempt is None or fact.timer is not Timer.RESEND:
        return
    if receiver_rules.is_held(attempt):
        marks.hit("ABORT sent again")
    elif attempt.phase is Phase.PUBLISHED and receiver_rules.to_publish(attempt):
        marks.hit("ASK sent again" if isinstance(attempt, PullState) else "PUBLISH sent again")


def prefill_clock(marks: Marks, state: SenderState, fact: SenderTimerFired) -> None:
    match fact.timer, fact.subject:
        case SenderTimer.ORPHAN, _:
            marks.hit("orphan PUBLISH or ASK timed out")
        case SenderTimer.REQUEST, _:
            marks.hit("request without PUBLISH or ASK timed out")
        case SenderTimer.RESEND, AttemptKey() as key if key in state.records:
            marks.hit(f"{_repeated(state.records[key])} sent again")
        case SenderTimer.LENT, AttemptKey() as key if key in state.records:
            marks.hit("loan timed out")


def _repeated(record: Record) -> str:
    if sender_rules.is_lent(record):
        return "OFFER" if record.phase is RecordPhase.OFFERED else "ABORT of a loan"
    return "FAIL{poisoned}" if record.poisoned else "DONE"


def handoff_failed(ground: Ground, worker: DecodeWorker, number: Attempt, failure: Failure) -> None:
    attempt = worker.state.attempts.get(number)
    if failure.code == "handoff_timeout":
        ground.marks.hit("hand-off timed out")
    if attempt is not None and not attempt.bound:
        ground.marks.hit("abort before BOUND")
    if worker.has_flights(number):
        moved = "reads" if isinstance(attempt, PullState) else "writes"
        ground.marks.hit(f"abort with {moved} in flight")


def released(ground: Ground, quarantined: bool, proof: Proof) -> None:
    ground.marks.hit(f"released {proof}")
    if not quarantined:
        return
    if ground.p.transfer == "pull":
        fenced = proof is Proof.FENCED
        ground.marks.hit(f"quarantine released by {'the closed endpoint' if fenced else 'the end of a read'}")
    elif proof is Proof.FENCED:
        ground.marks.hit("quarantine released by the writer's death")


def shared(ground: Ground, memory: Memory, reader: Reader, text: Text, who: str) -> None:
    """Cached pages are shared, or have just been cached: they hold what they are found by."""
    if not len(reader.pages):
        return
    pages = reader.pages.tolist()
    if who:
        ground.marks.hit(f"{who} prefix hit")
    if memory.prefixes._evicted_pages:
        ground.marks.hit("cached pages evicted")
        if who:
            ground.marks.hit("prefix hit after eviction")
    found = memory.found(pages)
    tags = memory.allocator.tag_of(reader.pages).tolist() if who != "prefill" else [cell[0] for cell in found]
    expected = list(zip(tags, text.labels, strict=False))
    ground.checks.no_poison.shared(found, expected, memory.where, 0)
