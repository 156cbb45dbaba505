"""PROTOCOL section 7 for the parts of a world: what is wrong, or "". Each looks at no more parts than it needs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from quiesce.ids import AttemptKey
from quiesce.kv.states import PageState
from quiesce.lab.explorer.between import Air, Wires
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.decode_side import DecodeSide
from quiesce.lab.explorer.doing import Doing
from quiesce.lab.explorer.prefill_side import PrefillSide
from quiesce.protocol import invariants
from quiesce.protocol.attempt import AttemptState, Phase
from quiesce.protocol.invariants import Content, Picture
from quiesce.protocol.messages import AbortAck, Done

NOTHING: frozenset[Any] = frozenset()


def wrong_with(do: Doing, decode: DecodeSide, prefills: tuple[PrefillSide, ...], wires: Wires, air: Air) -> str:
    """What is wrong with a world, or ""."""
    found: str = do(at_decode, decode)
    if found or not air.flights:
        return found
    found = do(early_acks, wires, air) or do(wild_writes, decode, air)
    for prefill in () if found else prefills:
        found = found or do(wild_reads, prefill, air)
    return found


def at_decode(config: Config, side: DecodeSide) -> str:
    """`no_alias`, `read_own`, `no_poison`, and `once` as the allocator sees it."""
    broken = invariants.no_alias(Picture(side.machine, ())) or _unowned(side) or _poison(side) or _miscounted(side)
    return next(iter(broken), "")


def _views(side: DecodeSide) -> dict[int, dict[tuple[int, int], Content]]:
    """Memory as each prefill rank filled it."""
    views: dict[int, dict[tuple[int, int], Content]] = defaultdict(dict)
    for (rank, page, k), content in side.memory.items():
        views[k][rank, page] = content
    return views


def _unowned(side: DecodeSide) -> tuple[str, ...]:
    """What is attended is the request's own context, leased pages and shared ones."""
    views = _views(side)
    reading = [each for each in side.machine.attempts.values() if each.phase is Phase.COMMITTED]
    return tuple(wrong for attempt in reading for wrong in _unowned_by(side, attempt, views))


def _unowned_by(side: DecodeSide, attempt: AttemptState, views: Any) -> list[str]:
    found: list[str] = []
    shared = [each for number, each in side.reading if number == attempt.attempt]
    for peer in attempt.grants:
        view = views[peer.rank]
        found += invariants.read_own(attempt, view)
        found += [f"read_own: shared {s}" for s in shared if view.get((s.decode_rank, s.page)) != s.content]
    return found


def _poison(side: DecodeSide) -> tuple[str, ...]:
    if not side.cached:
        return ()
    views = _views(side)
    cached = [each for each, _ in side.cached]
    found = [wrong for view in views.values() for wrong in invariants.no_poison(side.machine, cached, view)]
    return tuple(found) if views else ("no_poison: nothing was ever written",)


def _miscounted(side: DecodeSide) -> tuple[str, ...]:
    """Free, leased and cached pages are all pages, each once."""
    found = []
    for rank, pool in enumerate(side.pools):
        cached = {each.page for each, _ in side.cached if each.decode_rank == rank}
        leased = {page for (_, of), pages in side.own.items() if of == rank for page in pages}
        for number, page in enumerate(pool.pages):
            owned = (number in leased, number in cached, page.state == PageState.FREE)
            if sum(owned) != 1 or (number in cached) != (page.state == PageState.CACHED):
                found.append(f"once: page {number} of rank {rank} is {page.state.name.lower()}")
    return tuple(found)


def early_acks(config: Config, wires: Wires, air: Air) -> str:
    if not config.early:
        return ""
    flying = {(each.flight.sender, each.flight.key) for each in air.flights if each.state != "shut"}
    said = (each for each in wires.messages if isinstance(each.body, AbortAck | Done))
    return next((f"no_early_ack: {m}" for m in said if (m.sender, AttemptKey(m.to, m.attempt)) in flying), "")


def wild_writes(config: Config, side: DecodeSide, air: Air) -> str:
    if not config.wild:
        return ""
    return next(iter(invariants.no_wild_write(Picture(side.machine, (), _in_air(air)))), "")


def wild_reads(config: Config, side: PrefillSide, air: Air) -> str:
    if not config.wild:
        return ""
    mine = frozenset(each for each in _in_air(air) if each.sender == side.me)
    return next(iter(invariants.no_wild_read(Picture(_NOBODY, (side.machine,), mine))), "")


def _in_air(air: Air) -> frozenset[invariants.Flight]:
    return frozenset(each.flight for each in air.flights if each.state != "shut")


_NOBODY: Any = None
