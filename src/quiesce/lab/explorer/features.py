"""What a world has, feature by feature, and which pairs of features meet in none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

from quiesce.lab.explorer.config import Config

Has = Callable[[Config], bool]


def strikes(fault: str) -> Has:
    """The world may have this fault, and room for another one beside it."""
    return lambda world: dict(world.budget).get(fault, 0) > 0


def _rooms(world: Config) -> list[int]:
    return [each.room for each in world.requests]


def _have_equal_rooms(world: Config) -> bool:
    return len(set(_rooms(world))) < len(_rooms(world))


def _fit_at_once(world: Config) -> bool:
    return world.pages >= 2 * world.lease_pages


FEATURES: dict[str, Has] = {
    "two prefill ranks": lambda world: world.prefills == 2,
    "a dummy prefill rank": lambda world: world.arrivals is not None and world.prefills == 2,
    "two decode ranks": lambda world: world.ranks == 2,
    "two rooms": lambda world: len(set(_rooms(world))) > 1,
    "equal rooms, live at once": lambda world: _have_equal_rooms(world) and _fit_at_once(world),
    "a room used again": lambda world: _have_equal_rooms(world) and not _fit_at_once(world),
    "three attempts": lambda world: len(world.requests) > 2,
    "shared prefix": lambda world: world.cache,
    "several pages": lambda world: world.lease_pages > 1,
    "two chunks": lambda world: world.chunks == 2,
    "source pages used again": lambda world: 0 < world.sources < world.lease_pages * len(world.requests),
    "fence": lambda world: world.fence,
    "no fence": lambda world: not world.fence,
    "staged landing": lambda world: world.staged,
    "message lost": strikes("loss"),
    "message read twice": strikes("copy"),
    "write fails, may land": strikes("fail"),
    "write fails for good": strikes("quiesced"),
    "client or decode aborts": strikes("abort"),
    "router cancels": strikes("cancel"),
    "prefill gives up": strikes("ended"),
    "stream cut": strikes("cut"),
    "prefill crashes": strikes("crash_p"),
    "decode crashes": strikes("crash_d"),
    "prefill closes its endpoint": strikes("close"),
    "deadline, quarantine": strikes("clock"),
    "re-sent by a clock": strikes("resend"),
    "PROGRESS": strikes("beat"),
    "early and foreign acks": strikes("stray"),
    "torn write": strikes("torn"),
    "pull": lambda world: world.pull,
    "windows can be revoked": lambda world: world.revoke,
    "a reader's death is known": lambda world: world.deaths,
    "decode closes its endpoint": strikes("join"),
    "prefill is told wrongly that decode is gone": strikes("rumour"),
}

OF_ONE = {
    "message lost", "message read twice", "write fails, may land", "write fails for good", "client or decode aborts",
    "router cancels", "prefill gives up", "stream cut", "prefill crashes", "decode crashes",
    "prefill closes its endpoint", "deadline, quarantine", "re-sent by a clock", "PROGRESS", "early and foreign acks",
    "torn write", "decode closes its endpoint", "prefill is told wrongly that decode is gone",
}  # fmt: skip
"""Faults: two of them meet only where two may strike."""

IMPOSSIBLE: dict[frozenset[str], str] = {
    frozenset({"fence", "no fence"}): "the one is the other's absence",
    frozenset(
        {"equal rooms, live at once", "a room used again"}
    ): "of two requests, in one world it is one or the other",
}

OF_PULL = (
    *("pull", "windows can be revoked", "a reader's death is known", "decode closes its endpoint"),
    "prefill is told wrongly that decode is gone",
)
NOT_IN_PULL = {
    "two chunks": "prefill offers the whole prompt at once",
    "staged landing": "decode launches its own reads, into pages that are nobody else's until they are over",
    "early and foreign acks": "in pull decode acks, and what it waits for are its own reads",
}
IMPOSSIBLE |= {frozenset({name, other}): why for other, why in NOT_IN_PULL.items() for name in OF_PULL}


def features_of(world: Config) -> frozenset[str]:
    return frozenset(name for name, has in FEATURES.items() if has(world))


def pairs_of(world: Config) -> set[frozenset[str]]:
    """The pairs of features that meet in this world in one course of events."""
    strike = dict(world.budget).get("faults", 2)
    pairs = {frozenset(pair) for pair in combinations(sorted(features_of(world)), 2)}
    return {pair for pair in pairs if strike > 1 or not pair <= OF_ONE}


def meetings(worlds: Mapping[str, Config]) -> dict[frozenset[str], list[str]]:
    """Every pair of features, and the worlds in which it meets. Where neither is of pull, worlds of push count."""
    met: dict[frozenset[str], list[str]] = {frozenset(pair): [] for pair in combinations(FEATURES, 2)}
    for name, world in worlds.items():
        for pair in pairs_of(world):
            if not world.pull or not pair.isdisjoint(OF_PULL):
                met[pair].append(name)
    return met


def missing(worlds: Mapping[str, Config]) -> list[tuple[str, str]]:
    """The pairs that should meet somewhere and meet nowhere."""
    found = meetings(worlds)
    return [
        pair for pair in combinations(FEATURES, 2) if not found[frozenset(pair)] and frozenset(pair) not in IMPOSSIBLE
    ]
