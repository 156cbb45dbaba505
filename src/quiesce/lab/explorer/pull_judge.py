"""PROTOCOL section 7 for the parts of a world in which decode reads: what is wrong, or ""."""

from __future__ import annotations

from typing import Any

from quiesce.ids import Incarnation
from quiesce.lab.explorer import judge
from quiesce.lab.explorer.between import Wires
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.decode_side import DecodeSide
from quiesce.lab.explorer.doing import Doing
from quiesce.lab.explorer.prefill_side import PrefillSide
from quiesce.lab.explorer.reads import Reads
from quiesce.protocol import invariants, pull_invariants
from quiesce.protocol.invariants import Picture


def wrong_with(do: Doing, decode: DecodeSide, prefills: tuple[PrefillSide, ...], wires: Wires, reads: Reads) -> str:
    """What is wrong with a world, or ""."""
    found: str = do(judge.at_decode, decode)
    if found or not reads.flights:
        return found
    found = do(early_acks, wires, reads) or do(wild_writes, decode, reads)
    for prefill in () if found else prefills:
        found = found or do(wild_reads, prefill, reads, decode.machine.incarnation)
    return found


def early_acks(config: Config, wires: Wires, reads: Reads) -> str:
    if not config.early:
        return ""
    flights = (each.flight for each in reads.flights)
    return next(iter(pull_invariants.no_early_ack(flights, wires.messages)), "")


def wild_writes(config: Config, side: DecodeSide, reads: Reads) -> str:
    if not config.wild:
        return ""
    flights = frozenset(each.flight for each in reads.flights)
    return next(iter(invariants.no_wild_write(Picture(side.machine, (), flights))), "")


def wild_reads(config: Config, side: PrefillSide, reads: Reads, decode: Incarnation) -> str:
    """What is not read yet is still held for it, or is not served any more, or nobody will attend it."""
    if not config.wild:
        return ""
    flights = frozenset(
        each.flight
        for each in reads.flights
        if each.flight.sender == side.me and each.flight.key.decode.incarnation == decode and not reads.is_shut(each)
    )
    return next(iter(invariants.no_wild_read(Picture(_NOBODY, (side.machine,), flights))), "")


def leak(config: Config, decode: DecodeSide, prefills: tuple[PrefillSide, ...]) -> str:
    """What is held at rest without a named reason."""
    puller: Any = decode.machine
    broken = pull_invariants.no_leak(
        puller, [each.machine for each in prefills], can_revoke=config.revoke, deaths_are_known=config.deaths
    )
    return next(iter(broken), "")


_NOBODY: Any = None
