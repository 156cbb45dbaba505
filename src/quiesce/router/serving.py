"""Which pairs requests may be sent to: who with whom, how pages travel between the two, and since when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from quiesce.api.responses import Partner, Serving
from quiesce.ids import Incarnation
from quiesce.router.link import WorkerLink
from quiesce.router.objections import utc
from quiesce.router.pairs import Pair

MOST_WORKERS, MOST_PARTNERS = 64, 8
"""Workers that are told of, and how many prefill workers of each."""


class ServingPairs:
    """`clock` is `time.time`'s. A pair is known by its lives: a worker that comes back serves since then."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pairs: dict[tuple[Incarnation, ...], tuple[Pair, float]] = {}

    def see(self, pairs: Iterable[Pair]) -> bool:
        """These are all that there are now; whether there is any."""
        now_s, before = self._clock(), self._pairs
        seen = ((pair, pair.lives) for pair in pairs)
        self._pairs = {lives: (pair, before[lives][1] if lives in before else now_s) for pair, lives in seen}
        return bool(self._pairs)

    def listed(self) -> tuple[Serving, ...]:
        """By decode worker, in the order of names; bounded."""
        by_decode: dict[WorkerLink, list[tuple[str, float]]] = {}
        for pair, since_s in self._pairs.values():
            by_decode.setdefault(pair.decode, []).append((pair.prefill_name, since_s))
        first = sorted(by_decode, key=lambda link: link.name)[:MOST_WORKERS]
        return tuple(_serving(link, sorted(by_decode[link])) for link in first)

    def unlisted(self) -> int:
        """How many decode or aggregated workers serve beyond those that are listed."""
        return max(0, len({pair.decode for pair, _ in self._pairs.values()}) - MOST_WORKERS)


def _serving(decode: WorkerLink, partners: list[tuple[str, float]]) -> Serving:
    facts = dict(decode.welcome.facts) if decode.welcome else {}
    named = [(name, since_s) for name, since_s in partners if name]
    return Serving(
        decode.name,
        utc(min(since_s for _, since_s in partners)),
        facts.get("transport", ""),
        tuple(Partner(name, utc(since_s)) for name, since_s in named[:MOST_PARTNERS]),
        max(0, len(named) - MOST_PARTNERS),
    )
