"""The sender's decisions, one small named function each. Pure: they look and say, they change nothing.

Each is a rule of PROTOCOL section 4 (or a part of one); the mutant suite replaces them one by one.
"""

from __future__ import annotations

from quiesce.ids import AttemptKey, Incarnation
from quiesce.protocol.messages import Abort, Body, Envelope, Fail, OpenAttempts
from quiesce.protocol.receiver_io import Proof
from quiesce.protocol.record import (
    FIRST_OPEN,
    NO_LEASE,
    Call,
    Meeting,
    Record,
    RecordPhase,
    RequestPhase,
    RequestState,
    SenderState,
)
from quiesce.protocol.sender_io import ChunkComputed, Outcome

MAX_RESEND_ROUND = 10
"""Where `StartSenderTimer.round` stops counting: back-off needs no more, and the state stays finite."""

ACTIVE = frozenset({RecordPhase.BOUND, RecordPhase.SENDING})
COMPLETE = frozenset({RecordPhase.DRAINED, RecordPhase.DONE})


def is_addressed(state: SenderState, envelope: Envelope) -> bool:
    """It is for this rank in this life."""
    return envelope.to == state.me


def is_dead(state: SenderState, incarnation: Incarnation) -> bool:
    """Anything from a life that is over is refused."""
    return incarnation in state.dead


def merged(old: OpenAttempts, new: OpenAttempts) -> OpenAttempts:
    """Rule 9, monotone whatever the order of messages: an attempt is open only if both say so."""
    if new == old:
        return old
    watermark = max(old.watermark, new.watermark)
    old_below, new_below = set(old.below), set(new.below)
    still = {a for a in old_below if a >= new.watermark or a in new_below}
    still |= {a for a in new_below if a >= old.watermark or a in old_below}
    return OpenAttempts(watermark, tuple(sorted(still)))


def is_closed(state: SenderState, key: AttemptKey) -> bool:
    """Released at decode with proof, or committed and finished: nothing of it may start again (rule 9)."""
    return state.lives.get(key.decode.incarnation, FIRST_OPEN).is_closed(key.attempt)


def closed_records(state: SenderState, life: Incarnation) -> list[AttemptKey]:
    """The records that what this life says of its open attempts has closed, in order; a set makes it linear."""
    told = state.lives.get(life, FIRST_OPEN)
    still = set(told.below)
    mine = (key for key in state.records if key.decode.incarnation == life)
    return sorted(key for key in mine if key.attempt < told.watermark and key.attempt not in still)


def is_active(record: Record) -> bool:
    """It may still launch writes."""
    return record.phase in ACTIVE


def is_lent(record: Record) -> bool:
    """Pull: its window is open, or revoked without anybody having said that this is a fact."""
    return record.lent != NO_LEASE


def is_at_work(record: Record) -> bool:
    """Rule 17: computed, written or waiting for its turn; whoever waits for DONE may go on waiting."""
    return is_active(record)


def announced(state: SenderState, meeting: Meeting) -> list[Record]:
    """The PUBLISHes that wait for a request of this room and digest, in order."""
    records = state.records.values()
    waiting = [each for each in records if each.phase is RecordPhase.ANNOUNCED and each.meeting == meeting]
    return sorted(waiting, key=lambda each: each.key)


def may_bind(request: RequestState, record: Record) -> bool:
    """Same room *and* same digest, and a decode rank of the same life that is not bound yet."""
    if request.phase is not RequestPhase.WAITING or request.room != record.room or request.digest != record.digest:
        return False
    mine = record.key.decode
    return all(each.decode.incarnation == mine.incarnation and each.decode.rank != mine.rank for each in request.bound)


def is_fully_bound(request: RequestState) -> bool:
    return len(request.bound) >= request.decode_ranks


def may_launch(state: SenderState, record: Record) -> bool:
    """At most `window` calls are outstanding; an attempt that ended launches nothing."""
    return is_active(record) and bool(record.queued) and len(record.outstanding) < state.window


def is_poisoned_by(outcome: Outcome) -> bool:
    """Rule 5: only `landed` and `failed_quiesced` leave the count decrementable."""
    return outcome is Outcome.FAILED_IN_FLIGHT


def may_ack(record: Record) -> bool:
    """Rules 4 and 5: marked aborted, nothing outstanding, no write of unknown fate."""
    return record.abort_heard and not record.outstanding and not record.poisoned


def is_drained(request: RequestState, record: Record) -> bool:
    """Everything was computed, launched and has landed."""
    idle = not record.queued and not record.outstanding
    return request.phase is RequestPhase.COMPUTED and record.phase is RecordPhase.SENDING and idle


def to_repeat(record: Record) -> Body | None:
    """What is said again until it is answered: DONE of a drained attempt, FAIL{poisoned} of a poisoned one.

    In pull OFFER, and once the hand-off failed ABORT, as long as decode may read.
    """
    if record.phase is RecordPhase.POISONED and record.failure is not None:
        return Fail(record.failure, poisoned=True)
    if record.phase in (RecordPhase.DRAINED, RecordPhase.OFFERED):
        return record.done
    return Abort() if is_lent(record) else None


def reads_source(record: Record) -> bool:
    """Rule 13: a write of this attempt reads, may read or will read the source pages; lent ones decode may."""
    if is_lent(record):
        return True
    if record.fenced or record.source_fenced:
        return False
    return bool(record.queued or record.outstanding) or record.poisoned


def is_unsettled(record: Record) -> bool:
    """A transport may still report on it, or never can; or decode may still read."""
    return bool(record.outstanding) or record.poisoned or is_lent(record)


def source_proof(request: RequestState) -> Proof:
    """Why the source pages are free, once nothing reads them."""
    if request.freed_by_fence:
        return Proof.FENCED
    return Proof.DRAINED if request.bound else Proof.NEVER_ARMED


def may_forget(state: SenderState, record: Record) -> bool:
    """An attempt of a dead life needs no tombstone, only its unsettled writes need the record."""
    return is_dead(state, record.key.decode.incarnation) and not is_unsettled(record)


def fits(record: Record, chunk: ChunkComputed) -> bool:
    """The lease has a place for every page of the chunk."""
    return chunk.first_page + chunk.pages <= record.lease.pages


def split(chunk: ChunkComputed, batch_pages: int) -> tuple[Call, ...]:
    """A chunk as calls of at most `batch_pages` pages (0 = one call); the last call of the last chunk is `last`."""
    size = batch_pages or max(chunk.pages, 1)
    end = chunk.first_page + chunk.pages
    starts = range(chunk.first_page, end, size) if chunk.pages or not chunk.last else (chunk.first_page,)
    calls = [Call(start, min(size, end - start)) for start in starts]
    if chunk.last:
        calls[-1] = Call(calls[-1].first_page, calls[-1].pages, last=True)
    return tuple(calls)
