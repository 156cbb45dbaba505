"""Whom the router has refused, and which workers do not fit each other: why, and since when."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from quiesce.api.responses import Objection

LISTED_S = 60.0
"""How long a refused registration that is not tried again is told of; one that is comes every second."""
MOST_KEPT = 1024
MOST_LISTED = 64

Pair = tuple[str, str]
"""Names of a decode worker and of the prefill worker that it does not fit."""


class _Refusal(msgspec.Struct):
    reason: str
    since_s: float
    last_s: float


class Objections:
    """Clocks are `time.time`'s. Both kinds are bounded, and so is what is listed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._refused: dict[str, _Refusal] = {}
        self._unfit: dict[str, dict[Pair, str]] = {}
        self._since_s: dict[Pair, float] = {}

    def refuse(self, worker: str, reason: str) -> bool:
        """A registration was refused; whether that is news."""
        now_s = self._clock()
        known = self._refused.pop(worker, None)
        is_news = known is None or known.reason != reason
        if len(self._refused) >= MOST_KEPT:
            del self._refused[next(iter(self._refused))]
        self._refused[worker] = _Refusal(reason, now_s, now_s) if known is None or is_news else known
        self._refused[worker].last_s = now_s
        return is_news

    def take(self, worker: str) -> None:
        """It was registered, or is no longer refused."""
        self._refused.pop(worker, None)

    def find_unfit(self, source: str, found: Mapping[Pair, str]) -> list[Pair]:
        """All pairs that do not fit, as one source sees it now; which of them are news."""
        if self._unfit.get(source, {}) == found:
            return []
        before = self.unfit
        self._unfit[source] = {pair: found[pair] for pair in list(found)[:MOST_KEPT]}
        now, now_s = self.unfit, self._clock()
        # Since the pair is not formed, whatever it is today: a network that is down fails in more than one way.
        self._since_s = {pair: self._since_s[pair] if pair in before else now_s for pair in now}
        return [pair for pair in now if before.get(pair) != now[pair]]

    @property
    def unfit(self) -> dict[Pair, str]:
        """Why each pair is not formed. What two found out themselves comes after what was seen in advance."""
        merged: dict[Pair, str] = {}
        for found in self._unfit.values():
            merged = {**found, **merged}
        return merged

    @property
    def refused(self) -> dict[str, str]:
        self._forget()
        return {worker: each.reason for worker, each in self._refused.items()}

    def told(self) -> list[str]:
        """In words, for whoever asks why nothing is served; bounded. Pairs come first: both workers are here."""
        refused = [f"{worker} is refused: {reason}" for worker, reason in self.refused.items()]
        pairs = [f"{decode} with {prefill}: {why}" for (decode, prefill), why in self.unfit.items()]
        return [*pairs[: MOST_LISTED // 2], *refused[: MOST_LISTED // 2]]

    def listed(self) -> tuple[Objection, ...]:
        """Refused registrations, then pairs, each by age; of each kind at most half of `MOST_LISTED`."""
        self._forget()
        refused = [(each.since_s, Objection(name, each.reason)) for name, each in self._refused.items()]
        unfit = self.unfit.items()
        pairs = [(self._since_s[pair], Objection(pair[0], reason, peer=pair[1])) for pair, reason in unfit]
        return (*_oldest(refused), *_oldest(pairs))

    def _forget(self) -> None:
        before_s = self._clock() - LISTED_S
        self._refused = {worker: each for worker, each in self._refused.items() if each.last_s >= before_s}


def _oldest(found: list[tuple[float, Objection]]) -> list[Objection]:
    by_age = sorted(found, key=lambda each: each[0])[: MOST_LISTED // 2]
    return [msgspec.structs.replace(objection, since=utc(since_s)) for since_s, objection in by_age]


def utc(at_s: float) -> str:
    """As people read it."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
