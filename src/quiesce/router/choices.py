"""All answers to one request: each of its prompts, answered `n` times, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from quiesce.api.asked import Asked
from quiesce.api.responses import Usage
from quiesce.protocol.messages import Fault
from quiesce.router.choice import Choice
from quiesce.router.failures import ClientGone, GenerationFailed
from quiesce.router.order import Order, with_seed_of
from quiesce.router.service import Service

AT_ONCE = 32
"""Answers of one request that are generated at once: a large batch does not fill the workers' queues by itself."""


class Choices:
    """In the order of the response: the first prompt's answers, the second one's, and so on."""

    def __init__(self, service: Service, asked: Asked, orders: Sequence[Order]) -> None:
        self._orders = orders
        self._void = False
        self.all: list[Choice] = []
        for prompt, order in zip(asked.prompts, orders, strict=True):
            for number in range(asked.n):
                echo = service.echo(prompt, tells=asked.logprobs is not None) if asked.echo else None
                fresh = partial(service.calling.answer, asked, order.tail, len(echo.text) if echo else 0)
                generation = service.generation(with_seed_of(order, number), bounded=not self.all)
                self.all.append(Choice(len(self.all), echo, service, generation, fresh))
        self._n = asked.n

    async def check(self) -> None:
        """Raises RequestRejected when one of several cannot be served now: then none begins. One alone finds out."""
        for choice in self.all if len(self.all) > 1 else ():
            await choice.check()

    def usage(self) -> Usage:
        """What was used so far. Each prompt counts once, and as cached what none of its answers had to compute."""
        cached = sum(min(choice.answer.cached_tokens for choice in same) for same in self._of_prompts())
        completion = sum(choice.answer.completion_tokens for choice in self.all)
        return Usage.of(sum(order.prompt_tokens for order in self._orders), completion, cached)

    def used(self) -> tuple[int, int]:
        """Tokens of prompts that a worker was asked to compute, each once, and of all answers so far.

        None of either when that was for nobody, by no fault of the client's.
        """
        if self._void:
            return 0, 0
        prompts = zip(self._orders, self._of_prompts(), strict=True)
        begun = sum(order.prompt_tokens for order, same in prompts if any(choice.begun for choice in same))
        return begun, sum(choice.completion_tokens for choice in self.all)

    def _of_prompts(self) -> list[list[Choice]]:
        return [self.all[first : first + self._n] for first in range(0, len(self.all), self._n)]

    def aborted(self) -> None:
        """Whichever answer is still under way ends for this reason."""
        for choice in self.all:
            choice.aborted()

    async def each(self, answer: Callable[[Choice], Awaitable[None]]) -> None:
        """Answer all, `AT_ONCE` at a time. When one fails the others are ended, and its error is raised."""
        try:
            await self._each(answer)
        except GenerationFailed as error:
            # Of a document that will not come nobody has read anything.
            self._void = self._orders[0].kept and error.failure.fault is not Fault.CLIENT
            raise

    async def _each(self, answer: Callable[[Choice], Awaitable[None]]) -> None:
        if len(self.all) == 1:
            await answer(self.all[0])
            return
        seats = asyncio.Semaphore(AT_ONCE)
        tasks = [asyncio.ensure_future(_seated(seats, answer, choice)) for choice in self.all]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            failed = next((task for task in tasks if task.done() and task.exception()), None)
            if failed is not None:
                self._end_for(failed.exception())
                failed.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _end_for(self, error: BaseException | None) -> None:
        """Whose answers are ended early is told why."""
        for choice in () if isinstance(error, ClientGone) else self.all:
            choice.sibling_failed()


async def _seated(seats: asyncio.Semaphore, answer: Callable[[Choice], Awaitable[None]], choice: Choice) -> None:
    async with seats:
        await answer(choice)
