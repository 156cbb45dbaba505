"""Reads at decode: queued when prefill offers, counted before they are launched, settled one by one."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.protocol import puller_rules as rules
from quiesce.protocol import receiver_rules
from quiesce.protocol.attempt import Destination, Phase, PullState
from quiesce.protocol.decode_turn import PullerTurn
from quiesce.protocol.messages import Failure, Fault, Offer
from quiesce.protocol.puller_holds import fail, settle
from quiesce.protocol.puller_io import LaunchRead, ReadSettled
from quiesce.protocol.reasons import Reason
from quiesce.protocol.receiver_io import Verify
from quiesce.protocol.sender_io import Outcome

READ_FAILED = Failure("transfer_failed", "A read of the KV cache failed; nothing of it can land.", Fault.TRANSPORT)
READ_UNKNOWN = Failure("transfer_unknown", "A read of the KV cache has an unknown fate.", Fault.TRANSPORT)


def begin(turn: PullerTurn, attempt: PullState, there: Destination, offer: Offer) -> None:
    """A rank lends what this lease lacks: read it."""
    calls = rules.calls(offer.lease.pages, turn.state.batch_pages)
    offers, queued = attempt.offers.set(there, offer), attempt.queued.set(there, calls)
    _advance(turn, replace(attempt, offers=offers, queued=queued), there)


def _advance(turn: PullerTurn, attempt: PullState, there: Destination) -> None:
    turn.put(attempt)
    while rules.may_launch(turn.state, attempt, there):
        attempt = _launch(turn, attempt, there)
    if rules.may_verify(attempt):
        told = next(iter(attempt.offers.values()))
        turn.put(replace(attempt, phase=Phase.LANDED))
        turn.emit(Verify(attempt.attempt, told.first_token, told.payload_digest))


def _launch(turn: PullerTurn, attempt: PullState, there: Destination) -> PullState:
    """The count rises here, at the dequeue, before the effect exists that makes bytes move (rule 4)."""
    call, *rest = attempt.queued[there]
    read = turn.state.next_read
    turn.state = replace(turn.state, next_read=read + 1)
    queued = attempt.queued.set(there, tuple(rest)) if rest else attempt.queued.delete(there)
    counted = replace(attempt, queued=queued, outstanding=attempt.outstanding.set(read, there))
    turn.put(counted)
    source, target = attempt.offers[there].lease, attempt.leases[there.decode_rank]
    span = (call.first_page, call.pages)
    turn.emit(LaunchRead(attempt.attempt, there.peer, read, *span, source, target, there.decode_rank))
    return counted


def read_settled(turn: PullerTurn, fact: ReadSettled) -> None:
    """A launched read is terminal; it counts for its own attempt only (rule 4)."""
    attempt = turn.state.attempts.get(fact.attempt)
    there = None if attempt is None else attempt.outstanding.get(fact.read)
    if attempt is None or there is None:
        turn.ignore("read_settled", Reason.UNKNOWN)
        return
    attempt = replace(attempt, outstanding=attempt.outstanding.delete(fact.read))
    if rules.is_poisoned_by(fact.outcome):
        _poison(turn, replace(attempt, poisoned=attempt.poisoned | {there}))
    elif not receiver_rules.is_under_way(attempt):
        settle(turn, attempt)
    elif fact.outcome is Outcome.LANDED:
        _advance(turn, attempt, there)
    else:
        fail(turn, attempt, READ_FAILED)


def _poison(turn: PullerTurn, attempt: PullState) -> None:
    """Rule 5: no ack, ever; only decode's own closed endpoint is a proof now."""
    if receiver_rules.is_under_way(attempt):
        fail(turn, attempt, READ_UNKNOWN)
    else:
        turn.put(attempt)
