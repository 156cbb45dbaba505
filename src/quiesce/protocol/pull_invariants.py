"""PROTOCOL section 7 where decode reads: what is not the same as in push, as functions over the real states.

A `Flight` is a read here: `sender` is the lender, `key` whose read it is, and `reading` ends when the source was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quiesce.ids import AttemptKey, Incarnation
from quiesce.protocol import puller_rules, receiver_rules, sender_rules
from quiesce.protocol.attempt import Phase, PullerState
from quiesce.protocol.invariants import Broken, Flight
from quiesce.protocol.messages import AbortAck, Committed, Envelope, Fenced
from quiesce.protocol.record import Record, RecordPhase, SenderState

Lives = Mapping[Incarnation, PullerState]


def no_early_ack(flights: Iterable[Flight], messages: Iterable[Envelope]) -> Broken:
    """An attempt of which decode said ABORT_ACK, COMMITTED or FENCED has no read under way."""
    flying = {flight.key for flight in flights}
    said = [each for each in messages if isinstance(each.body, AbortAck | Committed | Fenced)]
    return tuple(f"no_early_ack: {each}" for each in said if AttemptKey(each.sender, each.attempt) in flying)


def no_leak(
    puller: PullerState,
    lenders: Iterable[SenderState],
    *,
    can_revoke: bool,
    deaths_are_known: bool,
    others: Iterable[PullerState] = (),
) -> Broken:
    """When the system is quiet, nothing is held but what awaits a *named* proof.

    At decode: a read of unknown fate, until its own endpoint is closed. At prefill: what such a read may still read,
    where windows cannot be revoked; and what a decode life was lent that is gone, where nobody knows that for certain.
    `others` are the other decode lives that go on.
    """
    wrong = [*_held_at_decode(puller)]
    lives = {each.incarnation: each for each in (puller, *others)}
    for lender in lenders:
        named = frozenset() if can_revoke else _named(lives, lender, deaths_are_known)
        wrong += _held_at_prefill(lender, named)
    return tuple(wrong)


def _held_at_decode(puller: PullerState) -> Broken:
    wrong = []
    for number, attempt in sorted(puller.attempts.items()):
        if not attempt.poisoned or attempt.outstanding or attempt.phase not in (Phase.QUARANTINED, Phase.RELEASED):
            wrong.append(f"no_leak: attempt {number} is {attempt.phase}, awaits {puller_rules.awaiting(attempt)}")
    return tuple(wrong)


def _named(lives: Lives, lender: SenderState, deaths_are_known: bool) -> frozenset[AttemptKey]:
    """The loans that nobody may take back."""
    lent = (key for key, record in lender.records.items() if sender_rules.is_lent(record))
    return frozenset(key for key in lent if _may_still_read(lives, lender, key, deaths_are_known))


def _may_still_read(lives: Lives, lender: SenderState, key: AttemptKey, deaths_are_known: bool) -> bool:
    puller = lives.get(key.decode.incarnation)
    if puller is None:
        return not deaths_are_known
    return key.decode.incarnation in lender.dead or _is_open(puller, key)


def _is_open(puller: PullerState, key: AttemptKey) -> bool:
    attempt = puller.attempts.get(key.attempt)
    return attempt is not None and receiver_rules.is_held(attempt)


def _held_at_prefill(lender: SenderState, named: frozenset[AttemptKey]) -> Broken:
    requests = {record.request for key, record in lender.records.items() if key in named}
    held = [f"no_leak: {lender.me} holds the source of {each}" for each in lender.requests if each not in requests]
    lingering = [each for each in lender.records.values() if _lingers(each, named)]
    return (*held, *(f"no_leak: {lender.me} has {each.key} {each.phase}" for each in lingering))


def _lingers(record: Record, named: frozenset[AttemptKey]) -> bool:
    if sender_rules.is_active(record) or record.phase is RecordPhase.OFFERED:
        return True
    return sender_rules.is_lent(record) and record.key not in named
