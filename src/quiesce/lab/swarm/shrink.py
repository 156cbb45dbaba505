"""Makes a failing plan small: fewer requests, faults and fates of messages, then a simpler cluster, same violation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from quiesce.lab.swarm.run import Outcome, Plan, run
from quiesce.lab.swarm.without import Without

T = TypeVar("T")

MOST_RUNS = 400
_RANK = re.compile(r" rank \d+| \(rank \d+ to \d+\)")
"""Where a fate says which rank it befalls; with one rank it says nothing."""
SIMPLER: tuple[tuple[str, Any], ...] = (
    *(("prefills", n) for n in (1, 2, 3)),
    *(("decodes", n) for n in (1, 2, 3)),
    *(("prefill_ranks", n) for n in (1, 2)),
    *(("decode_ranks", n) for n in (1, 2)),
    *(("prefix_cache", False), ("audited", False), ("ordered", True), ("bursts", False), ("pace_spread", 0.0)),
    *(("batch_pages", 0), ("retries", 0), ("room_bits", 63), ("per_minute", 0), ("tenants", 1)),
    *(
        ("landing", "direct"),
        ("fence_policy", "quarantine"),
        ("on_disconnect", "abort"),
        ("window", 1),
        ("max_running", 2),
    ),
)
"""What is tried in the place of what was drawn, in this order."""


class Shrinker:
    """Runs smaller plans; keeps those that still break the same property. At most `most_runs` (MOST_RUNS) runs."""

    def __init__(
        self,
        plan: Plan,
        found: Outcome,
        without: Without,
        now: Callable[[str], None] = lambda text: None,
        most_runs: int | None = None,
    ) -> None:
        self.runs = 0
        self._without, self._now, self._most_runs = without, now, MOST_RUNS if most_runs is None else most_runs
        self._name = found.violation
        self.plan = self._cut_off(plan, found)

    def _cut_off(self, plan: Plan, found: Outcome) -> Plan:
        """Nothing that comes after the violation matters; a violation after the healing needs all that was before."""
        told = replace(plan, told=frozenset(found.struck))
        until_s = min(plan.seconds, found.at_s)
        asks = tuple(ask for ask in plan.asks if ask.at_s <= until_s)
        early = tuple(fault for fault in plan.faults if fault.at_s <= until_s)
        return self._first_failing(replace(told, asks=asks, faults=early), told) or plan

    def _first_failing(self, *plans: Plan) -> Plan | None:
        return next((plan for plan in plans if self._fails(plan)), None)

    def shrink(self) -> Plan:
        """The smallest plan that was found."""
        before = None
        while before != self._size() and self.runs < self._most_runs:
            before = self._size()
            self._fewer("asks", tuple)
            self._fewer("faults", tuple)
            self._fewer("told", frozenset)
            self._simpler()
            self._shorter()
        return self.plan

    def _size(self) -> tuple[int, int, int]:
        return len(self.plan.asks), len(self.plan.faults), len(self.plan.told or ())

    def _fewer(self, field: str, made: Callable[[Sequence[Any]], Any]) -> None:
        given = getattr(self.plan, field) or ()
        items = sorted(given) if isinstance(given, frozenset) else list(given)
        if not items:
            return
        kept = ddmin(items, lambda some: self._fails(replace(self.plan, **{field: made(some)})))
        self.plan = replace(self.plan, **{field: made(kept)})

    def _simpler(self) -> None:
        for field, value in SIMPLER:
            drawn = getattr(self.plan.parameters, field)
            if drawn == value or (isinstance(value, int) and not isinstance(value, bool) and drawn < value):
                continue
            simpler = replace(self.plan, parameters=replace(self.plan.parameters, **{field: value}))
            if self._fails(simpler):
                self.plan = simpler
            elif value == 1 and field.endswith("_ranks") and self.plan.told:
                told = frozenset(_RANK.sub("", each) for each in self.plan.told)
                self.plan = self._first_failing(replace(simpler, told=told)) or self.plan

    def _shorter(self) -> None:
        """Requests that ask for less."""
        page = self.plan.parameters.page_size
        for prompt in (page, 2 * page, 4 * page):
            self._each_ask(prompt=prompt, blocks=(1, 2, 3)[: -(-prompt // (2 * page))])
        for field, value in (("answer", 1), ("most", None), ("leaves_s", None), ("timeout_s", None), ("priority", 0)):
            self._each_ask(**{field: value})

    def _each_ask(self, **changes: Any) -> None:
        for at, ask in enumerate(self.plan.asks):
            if ask.prompt <= changes.get("prompt", 0) or replace(ask, **changes) == ask:
                continue
            asks = (*self.plan.asks[:at], replace(ask, **changes), *self.plan.asks[at + 1 :])
            shorter = replace(self.plan, asks=asks)
            if self._fails(shorter):
                self.plan = shorter

    def _fails(self, plan: Plan) -> bool:
        if self.runs >= self._most_runs:
            return False
        self.runs += 1
        counts = (len(plan.asks), len(plan.faults), len(plan.told or ()))
        self._now("shrinking, run {}: {} requests, {} faults, {} fates".format(self.runs, *counts))
        return run(plan, without=self._without).violation == self._name


def ddmin(items: list[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A sub-list that still fails and from which no single item can be left out (Zeller and Hildebrandt, 2002)."""
    if fails([]):
        return []
    parts = 2
    while len(items) >= 2:
        smaller = next((rest for rest in _without_one_part(items, parts) if fails(rest)), None)
        if smaller is not None:
            items, parts = smaller, max(2, parts - 1)
        elif parts >= len(items):
            break
        else:
            parts = min(len(items), 2 * parts)
    return items


def _without_one_part(items: list[T], parts: int) -> Iterator[list[T]]:
    size = -(-len(items) // parts)
    for start in range(0, len(items), size):
        yield items[:start] + items[start + size :]
