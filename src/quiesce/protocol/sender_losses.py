"""Lost streams and lives, as prefill meets them in push and in pull."""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.ids import Incarnation, Peer
from quiesce.protocol import sender_rules as rules
from quiesce.protocol.lender_windows import stopped, withdraw
from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.record import RecordPhase
from quiesce.protocol.sender_ends import fail_request, refuse
from quiesce.protocol.sender_io import DecodeLost, DecodeReplaced, StopSenderTimers
from quiesce.protocol.sender_turn import SenderTurn

STREAM_LOST = Failure("stream_lost", "The stream to the decode worker ended.", Fault.DECODE, 503)
DECODE_LOST = Failure("decode_lost", "The decode worker is gone.", Fault.DECODE, 503)


def lose(turn: SenderTurn, fact: DecodeLost | DecodeReplaced) -> None:
    if isinstance(fact, DecodeLost):
        _lose_stream(turn, fact.decode)
    else:
        bury(turn, fact.old.incarnation)


def _lose_stream(turn: SenderTurn, decode: Peer) -> None:
    """Stop; nothing is forgotten, because older messages of this life may still be read (rule 9)."""
    for key in sorted(turn.state.records):
        record = turn.state.records[key]
        if key.decode != decode:
            continue
        if record.phase is RecordPhase.ANNOUNCED:
            refuse(turn, record, STREAM_LOST)
        elif rules.is_active(record):
            fail_request(turn, turn.request(record.request), STREAM_LOST)


def bury(turn: SenderTurn, life: Incarnation) -> None:
    """A decode life is over: refuse it from now on; keep only what a transport may still report on, and what was lent.

    That another life took its place does not say that this one reads no more (section 3).
    """
    turn.state = replace(turn.state, dead=turn.state.dead | {life})
    if life in turn.state.lives:
        turn.state = replace(turn.state, lives=turn.state.lives.delete(life))
    mine = [record for key, record in sorted(turn.state.records.items()) if key.decode.incarnation == life]
    for record in mine:
        if record.phase is RecordPhase.OFFERED:
            withdraw(turn, record, DECODE_LOST, is_heard=False)
            continue
        phase = RecordPhase.POISONED if record.poisoned else RecordPhase.ABORTED
        turn.put(stopped(record, phase, DECODE_LOST))
        turn.emit(StopSenderTimers(record.key))
    for record in mine:
        fail_request(turn, turn.request(record.request), DECODE_LOST)
        if rules.may_forget(turn.state, record):
            turn.drop(record.key)
