"""Writes at prefill: queued as chunks finish, counted before they are launched, settled one by one."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.errors import invariant
from quiesce.ids import AttemptKey
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.lender_windows import stopped
from quiesce.protocol.messages import Done, Fail, Failure, Fault
from quiesce.protocol.reasons import Reason
from quiesce.protocol.record import NO_LEASE, Record, RecordPhase, RequestPhase, RequestState
from quiesce.protocol.sender_ends import complete_request, fail_request, settle
from quiesce.protocol.sender_io import (
    ChunkComputed,
    Launch,
    Outcome,
    Poisoned,
    SenderTimer,
    StartSenderTimer,
    StopSenderTimers,
    WriteSettled,
)
from quiesce.protocol.sender_turn import SenderTurn

WRITE_FAILED = Failure("transfer_failed", "A write of the KV cache failed; nothing of it can land.", Fault.TRANSPORT)
WRITE_UNKNOWN = Failure("transfer_unknown", "A write of the KV cache has an unknown fate.", Fault.TRANSPORT)
LEASE_TOO_SMALL = Failure("lease_too_small", "Decode reserved fewer pages than the prompt has.", Fault.DECODE)


def computed(turn: SenderTurn, fact: ChunkComputed) -> None:
    """Queue a chunk's pages for every decode rank, and launch what the window lets out."""
    request = turn.request(fact.request)
    if request is None or request.phase is not RequestPhase.COMPUTING:
        turn.ignore("chunk_computed", Reason.LATE)
        return
    invariant(request.next_page in (-1, fact.first_page), "chunks_in_order", f"page {fact.first_page}")
    if not all(rules.fits(turn.state.records[key], fact) for key in request.bound):
        fail_request(turn, request, LEASE_TOO_SMALL)
        return
    request = turn.put_request(
        replace(
            request,
            phase=RequestPhase.COMPUTED if fact.last else RequestPhase.COMPUTING,
            next_page=fact.first_page + fact.pages,
            first_token=fact.first_token,
            payload_digest=fact.payload_digest,
            first_logprobs=fact.first_logprobs,
            cached_tokens=fact.cached_tokens,
        )
    )
    for key in request.bound:
        record = turn.state.records[key]
        calls = rules.split(fact, turn.state.batch_pages)
        _launch_queued(turn, request, replace(record, queued=record.queued + calls))


def _launch_queued(turn: SenderTurn, request: RequestState, record: Record) -> Record:
    turn.put(record)
    while rules.may_launch(turn.state, record):
        record = _launch(turn, request, record)
    return record


def _launch(turn: SenderTurn, request: RequestState, record: Record) -> Record:
    """The count rises here, at the dequeue, before the effect exists that makes bytes move (rule 4)."""
    call, *rest = record.queued
    write = turn.state.next_write
    turn.state = replace(turn.state, next_write=write + 1)
    counted = turn.put(
        replace(
            record,
            phase=RecordPhase.SENDING,
            queued=tuple(rest),
            outstanding=record.outstanding | {write},
            pages_launched=record.pages_launched + call.pages,
        )
    )
    token = request.first_token if call.last else -1
    turn.emit(Launch(record.key, request.request, write, call.first_page, call.pages, record.lease, call.last, token))
    return counted


def settled(turn: SenderTurn, fact: WriteSettled) -> None:
    """A launched write is terminal; it counts for its own attempt only (rule 4)."""
    record = turn.record(fact.key)
    if record is None or fact.write not in record.outstanding:
        turn.ignore("write_settled", Reason.UNKNOWN)
        return
    record = turn.put(replace(record, outstanding=record.outstanding - {fact.write}))
    if rules.is_poisoned_by(fact.outcome) and not record.fenced:
        _poison(turn, record)
    elif not rules.is_active(record):
        settle(turn, record)
    elif fact.outcome is Outcome.LANDED:
        _advance(turn, record)
    else:
        fail_request(turn, turn.request(record.request), WRITE_FAILED)


def _advance(turn: SenderTurn, record: Record) -> None:
    request = turn.state.requests[record.request]
    record = _launch_queued(turn, request, record)
    if rules.is_drained(request, record):
        _drain(turn, request, record)


def _drain(turn: SenderTurn, request: RequestState, record: Record) -> None:
    """Everything landed: say DONE until decode says COMMITTED or ABORT."""
    written = (record.pages_launched,)
    body = Done(
        record.digest,
        written,
        request.payload_digest,
        request.first_token,
        request.first_logprobs,
        request.cached_tokens,
    )
    turn.put(replace(record, phase=RecordPhase.DRAINED, lease=NO_LEASE, done=body))
    turn.reply(record.key, body)
    turn.emit(StopSenderTimers(record.key), StartSenderTimer(record.key, SenderTimer.RESEND))
    if all(_is_complete(turn, key) for key in request.bound):
        complete_request(turn, request)


def _is_complete(turn: SenderTurn, key: AttemptKey) -> bool:
    record = turn.record(key)
    return record is not None and record.phase in rules.COMPLETE


def _poison(turn: SenderTurn, record: Record) -> None:
    """Rule 5: no drain ack, ever. FAIL{poisoned} is said until FENCED."""
    turn.put(replace(stopped(record, RecordPhase.POISONED, WRITE_UNKNOWN), poisoned=True))
    turn.emit(StopSenderTimers(record.key), Poisoned(record.key))
    if not rules.is_dead(turn.state, record.key.decode.incarnation):
        turn.reply(record.key, Fail(WRITE_UNKNOWN, poisoned=True))
        turn.emit(StartSenderTimer(record.key, SenderTimer.RESEND))
    fail_request(turn, turn.request(record.request), WRITE_UNKNOWN)
