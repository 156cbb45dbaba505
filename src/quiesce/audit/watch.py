"""A low-rate audit that goes on: a donor, a victim and its solo in each cycle; passive, counted for Prometheus."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import deque

from prometheus_client import CollectorRegistry, Counter, Gauge

from quiesce.audit import prompts
from quiesce.audit.endpoint import Endpoint
from quiesce.audit.marker import Marker, Search, false_positive_bound, mint
from quiesce.audit.observation import Answer, Observation, Observer, Outcome
from quiesce.audit.options import Options
from quiesce.audit.plan import Arm, Ask
from quiesce.audit.target import Target

REMEMBERED = 1024
"""Markers that are looked for; a context that old has left every cache."""

RUN = 8
"""Syllables in a row that count: with 1024 markers, 10 million letters searched accuse a clean target with 0.003 %."""


class Counts:
    """Metrics of a watch, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests of the audit, by how they ended.", "outcome")
        self.markers = self._counter("marked_answers", "Answers that show a marker which somebody else was given.")
        self.diverged = self._counter("diverged_answers", "Victims whose answer differs from that of their solo.")
        self.compared = self._counter("compared_answers", "Victims whose answer was held against that of their solo.")
        self.letters = self._counter("searched_letters", "Letters of answers that were searched for markers.")
        self.false_positives = Gauge(
            "quiesce_audit_false_positive_bound",
            "Probability, at most, that a clean target had been accused by now.",
            registry=self.registry,
        )
        self.answered = Gauge(
            "quiesce_audit_last_answer_timestamp_seconds", "When an answer last came.", registry=self.registry
        )

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"quiesce_audit_{name}", about, labels, registry=self.registry)


class Watch:
    """`suspected` once a marker was seen where it must not be, or, with `bit_exact`, an answer differed."""

    def __init__(self, endpoint: Endpoint, target: Target, options: Options, counts: Counts) -> None:
        self.suspected = False
        self.cycles = 0
        self._endpoint = endpoint
        self._target = target
        self._options = options
        self._counts = counts
        self._draw = random.Random(f"watch {options.seed}")  # noqa: S311 - repeatable
        self._search = Search((), RUN)
        self._observer = Observer(self._search, secrets.token_bytes(32))
        self._alive: deque[Marker] = deque()
        self._minted = 0
        self._asked = 0
        self._bound = 0.0

    async def cycle(self) -> tuple[Observation, ...]:
        """Donor and victim together, then the victim alone."""
        self.cycles += 1
        donor, victim = self._donor(), self._victim()
        together = await asyncio.gather(self._ask(donor), self._ask(victim))
        solo = await self._ask(victim)
        seen = tuple(each for each, _ in (*together, solo))
        self._compare(together[1], solo)
        return seen

    def _compare(self, stressed: tuple[Observation, Answer], solo: tuple[Observation, Answer]) -> None:
        if not (stressed[0].is_answer and solo[0].is_answer):
            return
        self._counts.compared.inc()
        if stressed[1].text != solo[1].text:
            self._counts.diverged.inc()
            self.suspected |= self._options.bit_exact

    async def _ask(self, ask: Ask) -> tuple[Observation, Answer]:
        answer = await self._endpoint.ask(ask, self._target)
        seen = self._observer.observe(ask, answer)
        self._counts.requests.labels(seen.outcome.value).inc()
        self._counts.letters.inc(seen.letters)
        self._bound += false_positive_bound(seen.letters, len(self._search), RUN)
        self._counts.false_positives.set(min(1.0, self._bound))
        if seen.hits:
            self._counts.markers.inc()
            self.suspected = True
        if seen.outcome is Outcome.FINISHED:
            self._counts.answered.set_to_current_time()
        return seen, answer

    def _mint(self) -> Marker:
        marker = mint(self._minted, self._draw)
        self._minted += 1
        self._search.add(marker)
        self._alive.append(marker)
        if len(self._alive) > REMEMBERED:
            self._search.remove(self._alive.popleft().id)
        return marker

    def _donor(self) -> Ask:
        marker = self._mint()
        chars = self._target.chars_for(self._options.donor_tokens)
        return self._made("donor", prompts.donor(marker, chars, self._draw), marker)

    def _victim(self) -> Ask:
        marker = self._mint()
        question = self.cycles % len(prompts.QUESTIONS)
        chars = self._target.chars_for(self._options.victim_tokens)
        return self._made("victim", prompts.victim(marker, question, chars, self._draw), marker)

    def _made(self, role: str, content: str, marker: Marker) -> Ask:
        self._asked += 1
        return Ask(
            id=self._asked,
            role=role,
            arm=Arm.CONCURRENT,
            content=content,
            max_tokens=self._options.answer_tokens,
            own=(marker.id,),
        )
