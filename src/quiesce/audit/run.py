"""Carrying a plan out: stage by stage, bursts of pairs with pauses between them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from quiesce.audit.allowance import Allowance
from quiesce.audit.endpoint import Endpoint
from quiesce.audit.marker import Search
from quiesce.audit.observation import (
    Answer,
    Comparison,
    Observation,
    Observed,
    Observer,
    Outcome,
    Progress,
    Usage,
    same_chars,
)
from quiesce.audit.plan import Ask, Pair, Plan, Round, cost_tokens
from quiesce.audit.survey import counted_tokens
from quiesce.audit.target import Target


class Auditor:
    """Carries out one plan. Texts are kept only until a victim and its solo were compared."""

    def __init__(self, endpoint: Endpoint, target: Target, plan: Plan, progress: Progress) -> None:
        self._endpoint = endpoint
        self._target = target
        self._plan = plan
        self._progress = progress
        self._observer = Observer(Search(plan.markers, plan.run), secrets.token_bytes(32))
        self._allowance = Allowance(plan.options, endpoint.now_s)
        self._began_s = endpoint.now_s()
        self._seen: list[Observation] = []
        self._compared: list[Comparison] = []
        self._waiting: dict[int, tuple[Ask, str]] = {}

    async def run(self) -> None:
        """Every stage, in order. It may be cancelled: what was seen until then is `observed`."""
        plan = self._plan
        await self._one_by_one("alone, before", plan.before)
        for number, each in enumerate(plan.rounds, 1):
            await self._burst(f"round {number}/{len(plan.rounds)} ({each.arm})", each)
        await self._one_by_one("long prompts", plan.long)
        await self._one_by_one("alone, after", plan.after)
        await self._one_by_one("tenants", plan.tenants)

    def observed(self) -> Observed:
        """What was seen so far."""
        took_s = self._endpoint.now_s() - self._began_s
        unasked = self._plan.requests - len(self._seen)
        return Observed(tuple(self._seen), tuple(self._compared), self._allowance.tokens, took_s, unasked)

    async def _one_by_one(self, stage: str, asks: Iterable[Ask]) -> None:
        for ask in asks:
            await self._ask(stage, ask)

    async def _burst(self, stage: str, burst: Round) -> None:
        """Pairs side by side, two requests each; then load stops for a while."""
        at_once = max(1, self._plan.options.concurrency // 2)
        await in_parallel([partial(self._pair, stage, pair) for pair in burst.pairs], at_once)
        await asyncio.sleep(self._plan.options.pause_s)

    async def _pair(self, stage: str, pair: Pair) -> None:
        """The victim comes when its time has come, or, in the arm of aborts, once the donor has left and not before."""
        leaves_s = pair.leave.expected_ttfts * self._target.ttft_s
        asking = asyncio.create_task(self._ask(stage, pair.donor))
        patience_s = None if pair.donor.leave is not None else leaves_s
        try:
            await asyncio.wait([asking], timeout=patience_s)
            await asyncio.sleep(pair.offset_ttfts * self._target.ttft_s)
            await self._ask(stage, pair.victim)
            await asking
        finally:
            asking.cancel()

    async def _ask(self, stage: str, ask: Ask) -> None:
        cost = cost_tokens(ask, self._target)
        counted, answer = None, Answer(outcome=Outcome.SKIPPED)
        if self._allowance.allows(cost):
            if self._target.has_tokenizer and ask.role == "victim":
                counted = await counted_tokens(self._endpoint, self._target, self._plan.options, ask.text)
            await self._allowance.turn()
            answer = await self._endpoint.ask(ask, self._target)
            self._allowance.spend(spent_tokens(ask, answer.usage, cost))
        self._seen.append(self._observer.observe(ask, answer, counted))
        self._compare(ask, answer)
        self._progress(stage, len(self._seen), self._plan.requests)

    def _compare(self, ask: Ask, answer: Answer) -> None:
        """Whoever of victim and solo comes second is held against the other."""
        if ask.role not in ("victim", "solo") or answer.outcome is not Outcome.FINISHED:
            return
        victim = ask.id if ask.of is None else ask.of
        if victim not in self._waiting:
            self._waiting[victim] = (ask, answer.text)
            return
        other, text = self._waiting.pop(victim)
        stressed, solo = (ask, other) if ask.of is None else (other, ask)
        arm = stressed.arm if stressed.of is None else solo.arm
        self._compared.append(
            Comparison(
                victim=stressed.id,
                solo=solo.id,
                arm=arm.value,
                stratum=stressed.stratum,
                is_equal=text == answer.text,
                same_chars=same_chars(text, answer.text),
                chars=max(len(text), len(answer.text)),
            )
        )


def spent_tokens(ask: Ask, used: Usage, cost: int) -> int:
    """What the endpoint says that it computed, `cost` where it says nothing that can be."""
    return used.prompt_tokens + ask.max_tokens if used.prompt_tokens is not None and used.can_be else cost


Job = Callable[[], Coroutine[Any, Any, None]]


async def in_parallel(jobs: Sequence[Job], at_once: int) -> None:
    """All of them, `at_once` at a time."""
    seats = asyncio.Semaphore(at_once)

    async def seated(job: Job) -> None:
        async with seats:
            await job()

    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(seated(job))
